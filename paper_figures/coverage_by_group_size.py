"""Coverage of the interval functions against the group size."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from paper_figures.style import GREY, group_size_axis, intervals

TABLES = ("coverage",)
LEVEL = 0.95
CAPTION = (
    "Coverage of nominal 95% intervals against the group size, a row a target and a column a problem, with exact 95% limits "
    "(Clopper and Pearson) and lines at the nominal level. Of several components the one that is worst covered is shown; "
    "failures count as not covering."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel a target and problem."""
    table = tables["coverage"].query("measure == 'coverage' and level == @LEVEL")
    looks = intervals(table)
    targets, problems = table["target"].unique(), table["problem"].unique()
    figure, panels = plt.subplots(
        len(targets), len(problems), figsize=(1.2 + 2.4 * len(problems), 0.9 + 2.1 * len(targets)), sharey="row", squeeze=False
    )
    handles = {}
    for (i, target), (j, problem) in ((a, b) for a in enumerate(targets) for b in enumerate(problems)):
        axes = panels[i, j]
        part = table[(table["target"] == target) & (table["problem"] == problem)]
        axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
        for name, rows in part.groupby("interval", sort=False):
            look = looks[str(name)]
            worst = rows.loc[rows.groupby("group_size")["estimate"].idxmin()]
            handles[look.label] = axes.errorbar(
                worst["group_size"],
                worst["estimate"],
                yerr=[worst["estimate"] - worst["low"], worst["high"] - worst["estimate"]],
                fmt=look.marker,
                linestyle=look.line,
                color=look.colour,
                markerfacecolor="white",
                markeredgewidth=1.1,
                elinewidth=1.1,
                capsize=2.5,
            )
        group_size_axis(axes, sorted(table["group_size"].unique()))
        axes.set_xlabel("group size $G$" if i == len(targets) - 1 else "")
        axes.set_title(str(problem) if i == 0 else "", fontsize="small")
        axes.set_ylabel(f"coverage: {target}" if j == 0 else "", fontsize="small")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize="small")
    return figure
