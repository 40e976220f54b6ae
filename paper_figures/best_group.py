"""The whole group size of least error, and what three readings of the error law make of it.

Each row is a problem at a fixed budget N = BG. The open circle is the best whole group size, found by enumerating the exact error
at every group size. The other marks are minimisers over the reals. The exact law c1/B + c2/(BG) + c3/(BG(G-1)) has its minimum at
1 + sqrt(c3/c1). The printed law has its minimum at sqrt(c3/c1). The remaining mark minimises the printed law with c3 replaced by
E||W||^2, the constant of its remainder.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, ORANGE, PROBLEMS, VERMILION
from paper_figures.content.panels import Tables, ticks

PLACE = 25
TABLES = ("best_group",)
READINGS = {
    "corrected": (r"exact, $1 + \sqrt{c_3/c_1}$", BLUE, "D"),
    "printed": (r"printed, $\sqrt{c_3/c_1}$", VERMILION, "X"),
    "remainder": (r"printed, with $E\|W\|^2$ for $c_3$", ORANGE, "s"),
}


def draw(tables: Tables) -> Figure:
    """Draw a dot plot, a line for each problem, sorted by the best group size."""
    table = tables["best_group"]
    exact = table[table["quantity"] == "corrected"].set_index("problem").sort_values("optimum")
    heights = pd.Series(np.arange(len(exact)), index=exact.index)
    figure, axes = plt.subplots(figsize=(5.2, 3.9))
    axes.plot(
        exact["estimate"], heights, "o", color=BLACK, markerfacecolor="white", markersize=9.0, label="best whole, enumerated"
    )
    for name, (label, colour, marker) in READINGS.items():
        part = table[table["quantity"] == name]
        axes.plot(part["optimum"], heights[part["problem"]], marker, color=colour, linestyle="none", label=label)
    axes.set_xscale("log")
    ticks(axes.xaxis, [2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0])
    axes.set_yticks(heights, [PROBLEMS[str(name)].label for name in exact.index])
    axes.set_xlabel("group size $G$")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return figure
