"""The best group size of a whole run against the responses spent, with what IsoCompute and Theorem 7 say of it.

The group size that trains the best policy, on average over draws of a world, is shown against the responses spent in a whole run.
Grey bars are 95% confidence sets for the best of the group sizes on the grid. A size leaves the set if another one leads it.
Points are the vertices of parabolas through the best size and its neighbours, with 95% intervals from resampled draws. The curves
are fitted to the points. They are a sigmoid, which IsoCompute states, and a constant, which Theorem 7 states. Each group size has
its own best learning rate, one for all draws.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREY, VERMILION
from paper_figures.content.arms import KEYS, Arm, arm_title
from paper_figures.content.panels import Tables, legend_below, ticks

PLACE = 112
TABLES = ("frontier",)
FEW = "few prompts"
PANELS = (
    Arm(FEW),
    Arm(FEW, optimiser="Adam"),
    Arm(FEW, decaying=True),
    Arm(FEW, "rloo"),
    Arm("shared"),
    Arm("tabular"),
    Arm("easy"),
    Arm("hard"),
    Arm("wrong rewards"),
    Arm("16 tokens"),
    Arm("16 tokens", "rloo"),
    Arm("learned features"),
)
CURVES = {
    "sigmoid": (r"sigmoid in $\log C$ (IsoCompute)", VERMILION, "-"),
    "constant": ("one size for all budgets (Theorem 7)", BLUE, "--"),
}


def draw(tables: Tables) -> Figure:
    """Draw a panel for each world, estimator and optimiser."""
    arms = dict(iter(tables["frontier"].groupby(KEYS)))
    drawn = [arm for arm in PANELS if arm in arms]
    rows = -(-len(drawn) // 4)
    figure, panels = plt.subplots(rows, -(-len(drawn) // rows), figsize=(9.6, 2.7 * rows), sharey=True, squeeze=False)
    for axes, arm in zip(panels.flat, drawn, strict=False):
        part = arms[arm]
        success = part[(part["quantity"] == "success") & part["in_set"].eq(True)]
        for budget, kept in success.groupby("budget"):
            low, high = kept["group_size"].min() / np.sqrt(2.0), kept["group_size"].max() * np.sqrt(2.0)
            wide = {"color": GREY, "alpha": 0.4, "linewidth": 9.0, "solid_capstyle": "butt", "label": "may be best"}
            axes.plot([budget, budget], [low, high], **wide)
        best = part[part["quantity"] == "best size"].sort_values("budget")
        middle, half = best["estimate"], 1.96 * best["standard_error"]
        limits = np.stack([2.0**middle - 2.0 ** (middle - half), 2.0 ** (middle + half) - 2.0**middle])
        style = {"fmt": "o", "color": BLACK, "markersize": 4.0, "elinewidth": 1.0, "label": "best size"}
        axes.errorbar(best["budget"], 2.0**middle, limits, **style)
        fitted = part[part["quantity"] == "curve"].sort_values("budget")
        for name, (label, colour, line) in CURVES.items() if len(fitted) else ():  # a quick run has too few budgets
            own = fitted[fitted["curve"] == name]
            axes.plot(own["budget"], 2.0 ** own["estimate"], line, color=colour, label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_ylim(1.2, 400.0)
        axes.set_title(arm_title(arm), fontsize="small")
        ticks(axes.yaxis, [2.0**power for power in range(1, 9)])
    for axes in panels[-1]:
        axes.set_xlabel("responses spent, $C$")
    for axes in panels[:, 0]:
        axes.set_ylabel("best group size")
    legend_below(figure, panels[0, :1], ncols=4, fontsize="small")
    return figure
