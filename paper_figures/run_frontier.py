"""The lead of each group size over groups of 8 in a whole run, against the responses spent, in all settings.

The lead over groups of {USUAL} in mean success is shown against the responses spent in a whole run, for all settings of the
study. A point is a hundredth of success. Each curve is a group size at its own best learning rate, one rate for all draws of the
world. The lead is a mean over draws. Bars are 95% intervals, which count draws, runs and the choice of the rates. The planned
comparison is groups of {LARGE} at the largest budget. Each interval is for one comparison, and the panels have many. Open marks
have a best rate at an end of the grid. Panels are cut at the bottom.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK
from paper_figures.content.arms import KEYS, Arm, arm_title
from paper_figures.content.panels import Tables, legend_below, lengths
from simulations.runs.frontier import LARGE
from simulations.runs.frontier_statements import USUAL

PLACE = 111
TABLES = ("frontier",)
MARKERS = "osD^vPX*"
LEAST, MOST = -20.0, 10.0
COLUMNS = 3


def draw(tables: Tables) -> Figure:
    """Draw a panel for each setting."""
    table = tables["frontier"]
    leads = table[table["quantity"] == f"lead over {USUAL}"]
    arms = {Arm(*key): part for key, part in leads.groupby(KEYS, sort=False)}
    rows = -(-len(arms) // COLUMNS)
    figure, panels = plt.subplots(
        rows, min(COLUMNS, len(arms)), figsize=(9.6, 1.0 + 2.0 * rows), sharex=True, sharey=True, squeeze=False
    )
    sizes = np.sort(leads["group_size"].unique())
    colours = dict(zip(sizes, mpl.colormaps["viridis"](np.linspace(0.0, 0.9, len(sizes))), strict=True))
    for axes, (arm, part) in zip(panels.flat, arms.items(), strict=False):
        axes.axhline(0.0, color=BLACK, linewidth=0.8)
        for place, (size, marker) in enumerate(zip(sizes, MARKERS, strict=False)):
            curve = part[part["group_size"] == size].sort_values("budget")
            if curve.empty:
                continue
            x, y = curve["budget"] * 1.04 ** (place - len(sizes) / 2.0), 100.0 * curve["estimate"]
            bars = 100.0 * lengths(curve)
            look = {"color": colours[size], "linewidth": 1.0, "elinewidth": 0.8, "zorder": 3.0 if size == LARGE else 2.0}
            axes.errorbar(x, y, bars, marker=marker, markersize=3.5, label=f"$G={size:.0f}$", **look)
            ends = curve["at_end"].astype(bool)
            axes.plot(x[ends], y[ends], marker, color=colours[size], markerfacecolor="white", markersize=3.5, zorder=4.0)
        axes.set_xscale("log", base=2)
        axes.set_ylim(LEAST, MOST)
        axes.set_title(arm_title(arm), fontsize="small")
    for axes in list(panels.flat)[len(arms) :]:
        axes.remove()
    for axes in list(panels.flat)[max(0, len(arms) - COLUMNS) : len(arms)]:
        axes.set_xlabel("responses spent, $C$")
        axes.tick_params(labelbottom=True)
    figure.supylabel(f"lead over $G={USUAL}$, points", fontsize="medium")
    legend_below(figure, panels[0, :1], ncols=len(sizes), fontsize="small")
    return figure
