"""What coverage costs: mean width against coverage."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from paper_figures.style import GREY, intervals, log_axis

TABLES = ("coverage",)
LEVEL = 0.95
KEYS = ["interval", "target", "problem", "batch_size", "group_size", "component"]
CAPTION = (
    "Mean width against coverage of nominal 95% intervals, a point a problem, batch and component, a panel a target; widths are "
    "relative to the narrowest interval of the same cell. On the line the coverage is the nominal one; left of it the interval "
    "is too short, right of it longer than it need be."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel a target."""
    table = tables["coverage"].query("level == @LEVEL and measure in ('coverage', 'mean width')")
    looks = intervals(table)
    wide = table.pivot_table(index=KEYS, columns="measure", values="estimate", sort=False).reset_index()
    wide["relative width"] = wide["mean width"] / wide.groupby(KEYS[1:])["mean width"].transform("min")
    targets = wide["target"].unique()
    figure, panels = plt.subplots(1, len(targets), figsize=(1.0 + 2.8 * len(targets), 3.3), squeeze=False)
    handles = {}
    for axes, target in zip(panels[0], targets, strict=True):
        axes.axvline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
        for name, rows in wide[wide["target"] == target].groupby("interval", sort=False):
            look = looks[str(name)]
            handles[look.label] = axes.plot(
                rows["coverage"],
                rows["relative width"],
                look.marker,
                color=look.colour,
                markerfacecolor="none",
                markeredgewidth=0.9,
                linestyle="none",
            )[0]
        log_axis(axes)
        axes.set_title(str(target), fontsize="small")
        axes.set_xlabel("coverage")
    panels[0, 0].set_ylabel("mean width / narrowest")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize="small")
    return figure
