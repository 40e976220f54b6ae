"""Coverage of the interval functions against the group size.

The coverage of nominal {LEVEL:.0%} intervals is shown against the group size at B = {batches} prompts. Rows are targets and
columns are problems. Bars are exact 95% limits (Clopper and Pearson), and grey lines are the nominal level. Of several
components, the one with the lowest coverage is shown. A dataset that gives no answer counts as one whose target is not covered.
Broad pale lines are the exact limit of the coverage as B grows, where that limit differs from the nominal level.
"""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import GREY, Look
from paper_figures.content.panels import Tables, coverage_axis, curve, group_size_axis, intervals, lengths, marks, symbol

PLACE = 160
TABLES = ("coverage",)
LEVEL = 0.95
SHOWN = ("value", "gradient", "c1", "error", "group size")


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    return {"batches": listed(sorted(_curves(tables)["batch_size"].unique()))}


def draw(tables: Tables) -> Figure:
    """Draw one panel for each target and problem."""
    table = _curves(tables)
    targets, problems = table["target"].unique(), table["problem"].unique()
    size = (2.6 + 1.45 * len(problems), 0.7 + 1.6 * len(targets))
    figure, panels = plt.subplots(len(targets), len(problems), figsize=size, sharey="row", squeeze=False)
    sizes = sorted(table["group_size"].unique())
    for i, (row, target) in enumerate(zip(panels, targets, strict=True)):
        rows = table[table["target"] == target]
        looks = intervals(rows)
        for axes, problem in zip(row, problems, strict=True):
            _panel(axes, rows[rows["problem"] == problem], looks)
            group_size_axis(axes, sizes)
            axes.set_xlabel("group size $G$" if i == len(targets) - 1 else "")
            axes.tick_params(labelbottom=i == len(targets) - 1)
            axes.set_title(str(problem).replace(", ", ",\n") if i == 0 else "", fontsize="small")
        coverage_axis(row[0].yaxis)
        row[0].set_ylabel(f"{symbol(target)}\ncoverage", fontsize="small")
        for look in looks.values():
            curve(row[-1], [], [], look)
        if "limit" in set(rows["measure"]):
            row[-1].plot([], [], "-", color=GREY, linewidth=3.5, alpha=0.4, label="exact limit, many prompts")
        row[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")
    return figure


def _curves(tables: Tables) -> pd.DataFrame:
    """Return the coverages that are drawn, and their limits."""
    return tables["coverage"].query(
        "part == 'curve' and measure in ('coverage', 'limit') and level == @LEVEL and target in @SHOWN"
    )


def _panel(axes: Axes, part: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
    for name, rows in part.groupby("interval", sort=False):
        look = looks[str(name)]
        limit = rows[rows["measure"] == "limit"].groupby("group_size")["estimate"].min()
        axes.plot(limit.index, limit, "-", color=look.colour, linewidth=3.5, alpha=0.25)
        rows = rows[rows["measure"] == "coverage"]
        worst = rows.loc[rows.groupby("group_size")["estimate"].idxmin()]
        style = {"linestyle": look.line, "markeredgewidth": 1.1, "elinewidth": 1.1, "capsize": 2.0}
        drawn = marks(axes, worst["group_size"], worst["estimate"], look, yerr=lengths(worst), **style)
        drawn.lines[0].set_clip_on(False)  # marks at the ends of the axis are whole
