"""How success grows in small steps with and without division, and how long the escape from a small success rate takes.

One prompt has a right and a wrong tabular answer. Gradients are exact and steps are small. Time is the number of updates times
the step size. The left panel shows success from {SHOWN:g}. Curves are for gradients without division, divided by the true
standard deviation, and divided by that of groups of G responses (GRPO, ddof 1). The right panel shows the time from a success
rate p to {TO:g}. Grey segments have the slopes that their labels say. Dots are at the crossover p = G/(4(G-1)^2), about 1/(4G).
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, GREY, VERMILION, Look
from paper_figures.content.panels import Tables, size_colours
from simulations.normalisation.success_flow import SHOWN, TO  # noqa: F401, for the caption

PLACE = 242
TABLES = ("success_flow",)
LOOKS = {
    "plain": Look("not divided", BLACK, "", "-"),
    "divided": Look("divided by the true deviation", VERMILION, "", "-"),
    **{
        str(size): Look(f"$G$ = {size}", colour, "", line)
        for (size, colour), line in zip(size_colours((2, 8, 64)).items(), (":", "--", "-."), strict=True)
    },
}


def draw(tables: Tables) -> Figure:
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
    left.set(xscale="log", xlim=(1.0, 2000.0), ylim=(0.0, 1.0), xlabel="time: updates $\\times$ step size")
    left.set_ylabel("success probability")
    right.set(xlabel="success probability at the start", ylabel="time to success 1/2", xlim=(1e-05, 0.3))
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
    offset, ha, va = ((4, 4), "left", "bottom") if power == 1.0 else ((-4, -6), "right", "top")
    at = (middle, height * (middle / x[0]) ** -power)
    axes.annotate(label, at, offset, textcoords="offset points", color=GREY, ha=ha, va=va)
