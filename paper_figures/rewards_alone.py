"""Coverage and width of what rewards alone tell, against the number of prompts.

Pilots have {prompts} prompts with {sizes} responses each. The upper panel of each quantity shows the coverage of nominal
{LEVEL:.0%} intervals, with exact 95% limits (Clopper and Pearson). It is for the law of success rates where coverage is lowest,
of the {laws} that were tried. Crosses show the same if the success rates seen in {SEEN} responses are taken for the true rates.
The lower panel shows the median width on the law "{WIDTHS_OF}". By this law, some prompts never succeed, some always, and the
others now and then. A size whose intervals have no width has no line.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from statsmodels.stats.proportion import proportion_confint

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLUE, GREEN, GREY, ORANGE, VERMILION, Look
from paper_figures.content.panels import WORDS, Tables, coverage_axis, curve, log_axis, marks, ticks

PLACE = 185
TABLES = ("plan_coverage",)
LEVEL = 0.95
COLUMNS = 4
TICKS = (0.02, 0.1, 0.3, 0.6, 0.8, 0.95, 0.999)
WIDTHS_OF = "never, always, between"
SEEN = 8
"""Responses a prompt of those whose rates seen are taken for rates."""
TITLES = WORDS["rewards_alone"]
LOOKS = {
    2: Look("2 responses per prompt", ORANGE, "s", ":"),
    8: Look("8 responses per prompt", BLUE, "o", "-"),
    64: Look("64 responses per prompt", GREEN, "^", "--"),
}
BESIDE = {2: 0.87, 8: 1.0, 64: 1.15}
"""Factors by which points at one number of prompts stand beside one another."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    table = _design(tables)
    prompts, sizes = (listed(sorted(table[name].unique())) for name in ("prompts", "size"))
    return {"prompts": prompts, "sizes": sizes, "laws": table["law"].nunique()}


def draw(tables: Tables) -> Figure:
    """Draw coverage above and width below, one column for each quantity."""
    table = _design(tables)
    lines = -(-len(TITLES) // COLUMNS)
    figure, panels = plt.subplots(2 * lines, COLUMNS, figsize=(9.6, 3.6 * lines + 0.6), sharex=True)
    above, below = (panels[first::2].ravel() for first in (0, 1))
    for (quantity, title), upper, lower in zip(TITLES.items(), above, below, strict=False):
        rows = table[table["quantity"] == quantity]
        upper.sharey(above[0])
        lower.sharey(below[0])
        _coverage(upper, rows)
        _width(lower, rows[rows["law"] == WIDTHS_OF])
        upper.set_title(title, fontsize="small")
        lower.set_xlabel("prompts $B$")
        lower.tick_params(labelbottom=True)
    for spare in (*above[len(TITLES) :], *below[len(TITLES) :]):
        spare.set_axis_off()
    coverage_axis(above[0].yaxis, TICKS)
    for axes, label in zip(panels[:, 0], ("lowest coverage", "median width") * lines, strict=True):
        axes.set_ylabel(label)
    for axes in panels[:, 1:].flat:
        axes.tick_params(labelleft=False)
    handles = [curve(above[0], [], [], look) for size, look in LOOKS.items() if size in set(table["size"])]
    label = f"{SEEN} responses per prompt,\nobserved rates taken as true"
    handles += [Line2D([], [], marker="x", color=VERMILION, linestyle="none", label=label)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize="small")
    return figure


def _design(tables: Tables) -> pd.DataFrame:
    """Return the rows that are drawn."""
    return tables["plan_coverage"].query("part == 'design' and quantity in @TITLES.keys()")


def _coverage(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
    for size, part in rows.groupby("size"):
        look, beside = LOOKS[int(str(size))], BESIDE[int(str(size))]
        worst = part.loc[part.groupby("prompts")["estimate"].idxmin()]
        share, runs = worst["estimate"], worst["replications"]
        limits = proportion_confint(np.round(share * runs), runs, 1.0 - LEVEL, "beta")
        style = {"linestyle": look.line, "capsize": 2.0, "elinewidth": 1.0, "clip_on": False}
        marks(axes, worst["prompts"] * beside, share, look, yerr=[share - limits[0], limits[1] - share], **style)
    seen = rows[rows["size"] == SEEN].groupby("prompts")["plugged_in"].min()
    axes.plot(seen.index, seen, "x", color=VERMILION, clip_on=False)
    axes.set_xscale("log", base=2)
    axes.margins(x=0.12)


def _width(axes: Axes, rows: pd.DataFrame) -> None:
    for size, part in rows.groupby("size"):
        if (part["width"] > 1e-9).all():
            curve(axes, part["prompts"], part["width"], LOOKS[int(str(size))])
    log_axis(axes)
    axes.margins(x=0.12)
    ticks(axes.xaxis, sorted(rows["prompts"].unique()))
