"""The regret of the planned group size, and the coverage of what is said about it, against the size of the pilot."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.stats import binom

from paper_figures.harness.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, Look

PLACE = 395
TABLES = ("planned_group_size",)
LEVEL, LEAST = 0.95, 0.001
LOOKS = {
    4: Look("4 responses a prompt", ORANGE, "s", ":"),
    8: Look("8", BLUE, "D", "--"),
    16: Look("16", BLACK, "o", "-"),
    64: Look("64", GREEN, "^", "-."),
}
REGRETS = (0.001, 0.01, 0.1)
CAPTION = (
    "The planner on problems of known truth, from pilots of 32 to 2,048 prompts with 4 to 64 responses each, 100 pilots a point; "
    "above each column the best group size of the 2 to 64 that a budget of 1,024 responses allows. First row: by how much the "
    "error at the recommended group size is above the least, on average (below 0.1% drawn at 0.1%); red, what a group size of 8 "
    "always loses. Second row: the share of pilots after which the planner says that its recommendation is sure to lose no more "
    "than 5%. Third and fourth row: coverage of the 95% set of sizes that may be best, and of the 95% intervals of c1, c2 and c3 "
    "(their mean); grey, where 95 of 100 such points lie if the coverage is 95%. With 2 or 3 responses a prompt the three "
    "constants cannot be told apart, and the planner answers from rewards alone."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw one column for each problem."""
    table = tables["planned_group_size"].query("part == 'design' and arm == 'planned' and size in @LOOKS.keys()")
    problems = table["problem"].unique()
    figure, panels = plt.subplots(4, len(problems), figsize=(2.2 * len(problems), 7.6), sharex=True, sharey="row", squeeze=False)
    for column, name in zip(panels.T, problems, strict=True):
        rows = table[table["problem"] == name]
        column[0].set_title(f"{name}: best {int(rows['best'].iloc[0])}", fontsize="small")
        _regret(column[0], rows)
        _lines(column[1], rows[rows["quantity"] == "enough"])
        column[1].set_ylim(-0.04, 1.04)
        _coverage(column[2], rows[rows["quantity"] == "best size"])
        constants = rows[rows["quantity"].isin(["c1", "c2", "c3"])]
        _coverage(column[3], constants.groupby(["prompts", "size", "replications"], as_index=False)["estimate"].mean())
        column[3].set_xlabel("prompts in the pilot")
    labels = ("error above the least", "sure to lose\nat most 5%", "coverage:\nbest group size", "coverage:\nc1, c2, c3")
    for axes, label in zip(panels[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LOOKS) + 1, fontsize="small")
    return figure


def _regret(axes: Axes, rows: pd.DataFrame) -> None:
    regret = rows[rows["quantity"] == "regret"]
    _lines(axes, regret.assign(estimate=regret["estimate"].clip(lower=LEAST)))
    axes.axhline(max(float(rows["default"].iloc[0]), LEAST), color=VERMILION, linewidth=1.0, label="group size 8, always")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(REGRETS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100.0 * share:g}%"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0.8 * LEAST, 0.6)


def _coverage(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
    limits = binom.interval(0.95, rows["replications"].min(), LEVEL)
    axes.axhspan(*(limit / rows["replications"].min() for limit in limits), color=GREY, alpha=0.15, linewidth=0)
    _lines(axes, rows)
    axes.set_ylim(0.83, 1.01)


def _lines(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_xscale("log", base=2)
    prompts = sorted(rows["prompts"].unique())
    axes.xaxis.set_major_locator(FixedLocator(prompts))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    for size, look in LOOKS.items():
        some = rows[rows["size"] == size].sort_values("prompts")
        if len(some):
            axes.plot(
                some["prompts"],
                some["estimate"],
                look.line,
                color=look.colour,
                marker=look.marker,
                markerfacecolor="white",
                label=look.label,
            )
