"""What coverage costs: median width against coverage.

The median width of nominal {LEVEL:.0%} intervals is shown against their coverage, in a panel for each target. There is a point
for each component in each cell of the design. Widths are relative to the narrowest interval of the same cell. On the grey line
coverage is nominal. Left of it the interval is too short, and right of it longer than it need be. Full points are cells where
success is rare. Relative widths above {WIDEST:g} are drawn at the upper edge. Unbounded widths are left out.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from grpo_theory.page.style import GREY
from paper_figures.content.panels import Tables, coverage_axis, intervals, log_axis, symbol

PLACE = 170
TABLES = ("coverage",)
LEVEL = 0.95
SHOWN = ("value", "gradient", "c1", "c2", "error", "group size")
COLUMNS, WIDEST = 3, 5.0
TICKS = (0.02, 0.1, 0.3, 0.6, 0.8, 0.95, 0.99, 0.999)
KEYS = ["interval", "target", "problem", "batch_size", "group_size", "component"]


def draw(tables: Tables) -> Figure:
    """Draw one panel for each target."""
    table = tables["coverage"].query(
        "part == 'design' and level == @LEVEL and target in @SHOWN and measure in ('coverage', 'median width')"
    )
    wide = table.pivot_table(index=[*KEYS, "success"], columns="measure", values="estimate", sort=False).reset_index()
    wide = wide[np.isfinite(wide["median width"]) & (wide["median width"] > 0.0)]
    wide["relative width"] = wide["median width"] / wide.groupby(KEYS[1:])["median width"].transform("min")
    targets = wide["target"].unique()
    count = -(-len(targets) // COLUMNS)
    figure, panels = plt.subplots(count, COLUMNS, figsize=(0.6 + 2.9 * COLUMNS, 0.4 + 3.1 * count), sharex=True, squeeze=False)
    for axes, target in zip(panels.flat, targets, strict=False):
        part = wide[wide["target"] == target]
        looks = intervals(part)
        axes.axvline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
        for name, rows in part.groupby("interval", sort=False):
            look = looks[str(name)]
            for success, some in rows.groupby("success"):
                style = {"color": look.colour, "markersize": 4.0, "markeredgewidth": 0.9, "alpha": 0.8, "clip_on": False}
                style |= {"markerfacecolor": look.colour if success == "rare" else "none"}
                axes.plot(some["coverage"], some["relative width"].clip(upper=WIDEST), look.marker, linestyle="none", **style)
            axes.plot([], [], look.marker, color=look.colour, markerfacecolor="none", linestyle="none", label=look.label)
        log_axis(axes)
        axes.set_ylim(0.93, 1.04 * WIDEST)
        coverage_axis(axes.xaxis, TICKS)
        axes.tick_params(labelbottom=True)
        axes.set_title(symbol(target), fontsize="small", loc="left")
        axes.set_xlabel("coverage")
        axes.legend(fontsize="x-small", loc="lower right", bbox_to_anchor=(1.03, 0.99), handletextpad=0.1)
    panels[0, 0].set_xlim(max(float(wide["coverage"].min()) / 1.5, TICKS[0]), TICKS[-1])
    for axes in panels.flat[len(targets) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("median width / narrowest")
    faces = {"success is rare": GREY, "other cells": "none"}
    marks = [Line2D([], [], color=GREY, marker="o", markerfacecolor=f, linestyle="none", label=name) for name, f in faces.items()]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, fontsize="small")
    return figure
