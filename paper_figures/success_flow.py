"""How success grows in small steps with and without division, and how long the escape from a small success rate takes."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, GREY, VERMILION, Look, size_colours
from simulations.normalisation.success_flow import SHOWN, TO

PLACE = 242
TABLES = ("success_flow",)
CAPTION = (
    "One prompt has a right and a wrong tabular answer. Gradients are exact and steps are small. Time is the number of "
    f"updates times the step size. The left panel shows success from {SHOWN:g}. Curves are for gradients without division, "
    "divided by the true standard deviation, and divided by that of groups of G responses (GRPO, ddof 1). The right panel "
    f"shows the time from a success rate p to {TO:g}. Grey segments have the slopes that their labels say. Dots are at the "
    "crossover p = G/(4(G-1)^2), about 1/(4G)."
)
LOOKS = {
    "plain": Look("not divided", BLACK, "", "-"),
    "divided": Look("divided by the true deviation", VERMILION, "", "-"),
    **{
        str(size): Look(f"$G$ = {size}", colour, "", line)
        for (size, colour), line in zip(size_colours((2, 8, 64)).items(), (":", "--", "-."), strict=True)
    },
}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw success against time, and the time of escape against the success rate at the start."""
    curves = tables["success_flow"].query("what == 'curve'")
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.9))
    for flow, look in LOOKS.items():
        part = curves[curves["flow"] == flow]
        success, escape = part[part["how"] == "success"], part[part["how"] == "escape"]
        left.plot(success["estimate"], success["at"], look.line, color=look.colour, label=look.label)
        right.loglog(escape["at"], escape["estimate"], look.line, color=look.colour)
        if flow.isdigit() and int(flow) > 3:
            size = int(flow)
            crossover = size / (4.0 * (size - 1.0) ** 2)
            time = np.exp(np.interp(np.log(crossover), np.log(escape["at"]), np.log(escape["estimate"])))
            right.plot(crossover, time, "o", color=look.colour, markersize=5.5)
    left.set_xscale("log")
    left.set_xlim(1.0, 2e3)
    left.set_ylim(0.0, 1.0)
    left.set_xlabel(r"time: updates $\times$ step size")
    left.set_ylabel("success probability")
    right.set_xlabel("success probability at the start")
    right.set_ylabel("time to success 1/2")
    right.set_xlim(1e-5, 0.3)
    _slope(right, (3e-5, 1e-3), 1.2e5, 1.0, "slope $-1$")
    _slope(right, (3e-5, 1e-3), 60.0, 0.5, r"slope $-\frac{1}{2}$")
    left.plot([], [], "o", color=GREY, markersize=5.5, label="crossover (right)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _slope(axes: Axes, ends: tuple[float, float], height: float, power: float, label: str) -> None:
    x = np.array(ends)
    y = height * (x / x[0]) ** -power
    axes.plot(x, y, "-", color=GREY, linewidth=0.9)
    middle = np.sqrt(x.prod())
    above = power == 1.0
    axes.annotate(
        label,
        (middle, height * (middle / x[0]) ** -power),
        xytext=(4, 4) if above else (-4, -6),
        textcoords="offset points",
        color=GREY,
        ha="left" if above else "right",
        va="bottom" if above else "top",
    )
