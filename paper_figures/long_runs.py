"""What each group size loses in whole runs of long answers, without and with division by the standard deviation.

Points are the success that a size loses to the best size at the same number of responses, in points. They are means over lengths
of answers, optimisers and five budgets, over draws of each kind of world, with 95% limits. Each size has its own best learning
rate at each budget, one for all draws. The dashed line is at one point. The vertical scale is linear up to one point and
logarithmic above it.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION
from paper_figures.content.panels import Tables, legend_below, ticks

PLACE = 112.5
TABLES = ("long_runs",)
KINDS = {
    "text": (BLUE, "o-"),
    "format": (VERMILION, "s--"),
    "walk": (GREEN, "^-."),
    "teaching": (ORANGE, "D:"),
    "many prompts": (BLACK, "v-"),
}
"""The kinds of world, their colours, marks and lines."""


def draw(tables: Tables) -> Figure:
    """Draw a panel without division and one with it, and a line for each kind of world."""
    table = tables["long_runs"]
    lost = table[(table["quantity"] == "lost") & table["kind"].isin(list(KINDS))]
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.3), sharey=True)
    for axes, name in zip(panels, ("undivided", "divided"), strict=True):
        for place, (kind, (colour, look)) in enumerate(KINDS.items()):
            part = lost[(lost["kind"] == kind) & (lost["estimator"] == name)].sort_values("group_size")
            estimate = 100.0 * part["estimate"].to_numpy()
            limits = 100.0 * np.stack([part["estimate"] - part["low"], part["high"] - part["estimate"]])
            sizes = part["group_size"] * 2.0 ** (0.06 * (place - 2))  # side by side
            style = {"color": colour, "markersize": 4.5, "elinewidth": 0.9, "linewidth": 1.2, "label": kind}
            axes.errorbar(sizes, estimate, limits, fmt=look, **style)
        axes.axhline(1.0, color=GREY, linestyle="--", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1.0)
        ticks(axes.xaxis, sorted(lost["group_size"].unique()))
        ticks(axes.yaxis, [0, 1, 2, 5, 10, 20])
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("group size $G$")
    panels[0].set_ylabel("points lost to the best size")
    legend_below(figure, panels[:1], ncols=5, fontsize="small")
    return figure
