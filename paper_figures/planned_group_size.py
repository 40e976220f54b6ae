"""The regret of the planned group size, and the coverage of the planner's limits, against the size of the pilot.

The planner is tried on problems of known truth. There are pilots of {prompts} prompts with {sizes} responses each, {pilots}
answered pilots per point. Above each column stands the best group size, of those up to {LIMITS.max_group_size} that a budget of
{LIMITS.budget:,.0f} responses allows. The first row shows by how much the error at the recommended group size is above the
least, on average. An excess below {LEAST:.1%} is drawn at that value. The orange line shows the excess at group size {DEFAULT}.
The second row shows the share of pilots after which the planner says that its recommendation loses no more than
{TOLERANCE:.0%}. Bars in both rows are {LEVEL:.0%} limits, of the shares exact ones (Clopper and Pearson). The third row shows
the coverage of the {LEVEL:.0%} set of sizes that may be best. The fourth row shows the mean coverage of the {LEVEL:.0%}
intervals of c1, c2 and c3. If their coverage is {LEVEL:.0%}, 95% of points lie in the grey band.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom

from grpo_theory.intervals.interval import binomial_limits
from grpo_theory.page.captions import listed, spanned
from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, NORMAL_95, ORANGE, VERMILION, Look
from grpo_theory.plan.advice import TOLERANCE
from paper_figures.content.panels import PERCENT, WORDS, Tables, curve, legend_below, lengths, marks, ticks
from simulations.plan.pilot_problems import LIMITS  # noqa: F401, for the caption
from simulations.plan.planned_group_size import DEFAULT

PLACE = 395
TABLES = ("planned_group_size",)
LEVEL, LEAST = 0.95, 0.001
LOOKS = {
    4: Look("4 responses per prompt", ORANGE, "s", ":"),
    8: Look("8 responses per prompt", BLUE, "D", "--"),
    16: Look("16 responses per prompt", BLACK, "o", "-"),
    64: Look("64 responses per prompt", GREEN, "^", "-."),
}
TITLES = WORDS["planned_group_size"]


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    table = _design(tables)
    prompts, sizes = (listed(sorted(table[name].unique())) for name in ("prompts", "size"))
    return {"prompts": prompts, "sizes": sizes, "pilots": spanned(table["replications"])}


def draw(tables: Tables) -> Figure:
    """Draw one column for each problem."""
    table = _design(tables)
    problems = table["problem"].unique()
    figure, panels = plt.subplots(4, len(problems), figsize=(2.2 * len(problems), 7.6), sharex=True, sharey="row", squeeze=False)
    least = LEVEL
    for column, name in zip(panels.T, problems, strict=True):
        rows = table[table["problem"] == name]
        column[0].set_title(f"{TITLES.get(name, name)}\nbest group size: {int(rows['best'].iloc[0])}", fontsize="small")
        _regret(column[0], rows)
        enough = rows[rows["quantity"] == "enough"]
        hits = enough["estimate"] * enough["replications"]
        low, high = binomial_limits(hits, enough["replications"] - hits, LEVEL)
        _lines(column[1], enough.assign(low=low, high=high))
        column[1].set_ylim(-0.04, 1.04)
        constants = rows[rows["quantity"].isin(["c1", "c2", "c3"])]
        means = constants.groupby(["prompts", "size", "replications"], as_index=False)["estimate"].mean()
        for axes, part in ((column[2], rows[rows["quantity"] == "best size"]), (column[3], means)):
            least = min(least, _coverage(axes, part))
        column[3].set_xlabel("prompts in the pilot")
    sure = f"sure to lose\nat most {TOLERANCE:.0%}"
    labels = ("error above the least", sure, "coverage:\nbest group size", "coverage:\n$c_1$, $c_2$, $c_3$")
    for axes in panels[2:, 0]:
        axes.set_ylim(least - 0.2 * (1.0 - least), 1.0 + 0.1 * (1.0 - least))
    for axes, label in zip(panels[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    legend_below(figure, panels[[0, 2], 0], ncols=3, fontsize="small")
    return figure


def _design(tables: Tables) -> pd.DataFrame:
    """Return the rows that are drawn."""
    return tables["planned_group_size"].query("part == 'design' and arm == 'planned' and size in @LOOKS.keys()")


def _regret(axes: Axes, rows: pd.DataFrame) -> None:
    regret = rows[rows["quantity"] == "regret"]
    half = NORMAL_95 * regret["standard_error"]
    limits = regret.assign(low=regret["estimate"] - half, high=regret["estimate"] + half)
    columns = ["estimate", "low", "high"]
    _lines(axes, limits.assign(**limits[columns].clip(lower=LEAST)))
    always = max(float(rows["default"].iloc[0]), LEAST)
    axes.axhline(always, color=VERMILION, linewidth=1.0, label=f"group size {DEFAULT}, always")
    axes.set(yscale="log", ylim=(0.8 * LEAST, 0.6))
    ticks(axes.yaxis, (0.001, 0.01, 0.1), PERCENT)


def _coverage(axes: Axes, rows: pd.DataFrame) -> float:
    """Draw coverages with the band in which they would lie, and return the least of both."""
    axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
    runs = rows["replications"].min()
    low, high = (limit / runs for limit in binom.interval(0.95, runs, LEVEL))
    axes.axhspan(low, high, color=GREY, alpha=0.15, linewidth=0, label=f"95% of points, if coverage is {LEVEL:.0%}")
    _lines(axes, rows)
    return float(min(low, rows["estimate"].min()))


def _lines(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_xscale("log", base=2)
    ticks(axes.xaxis, sorted(rows["prompts"].unique()))
    for size, look in LOOKS.items():
        some = rows[rows["size"] == size].sort_values("prompts")
        if len(some):
            if "low" in some:
                marks(axes, some["prompts"], some["estimate"], look, yerr=lengths(some), elinewidth=0.9)
            curve(axes, some["prompts"], some["estimate"], look)
