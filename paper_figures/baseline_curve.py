"""The variance of the gradient as a function of the baseline.

Each panel shows the variance of one response's gradient term given its prompt, averaged over prompts. The baselines are t V(x)
and t b*(x). Labels mark no baseline (t = 0), the value baseline V and the optimal baseline b* (t = 1). Lines are exact; points
are simulated, with 95% intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, GREEN, LANGUAGE_MODEL, ORANGE, PROBLEMS, Look
from paper_figures.content.panels import Tables, points

PLACE = 40
ABOUT = "U6"
TABLES = ("baseline_curve",)
LOOKS = {
    "scaled_value": Look("$t\\,V(x)$", BLACK, "o", "-"),
    "scaled_optimal": Look("$t\\,b^*(x)$", GREEN, "^", "--"),
}


def draw(tables: Tables) -> Figure:
    """Draw three panels, one for each policy of the language model."""
    table = tables["baseline_curve"]
    figure, panels = plt.subplots(1, 3, figsize=(9.0, 3.4), sharey=True)
    fine = np.linspace(0.0, 2.0, 201)
    for axes, problem in zip(panels, LANGUAGE_MODEL, strict=True):
        for name, look in LOOKS.items():
            part = table[(table["problem"] == problem) & (table["baseline"] == name)].sort_values("t")
            # Three points fix a parabola, so the curve through the exact values is exact.
            curve = np.polynomial.Polynomial.fit(part["t"], part["prediction"], 2)
            axes.plot(fine, curve(fine), look.line, color=look.colour, label=f"baseline {look.label}")
            points(axes, part["t"], part["estimate"], part["standard_error"], look)
            mark = "V" if name == "scaled_value" else "b^*"
            drop = (-6, -13) if name == "scaled_optimal" else (-4, 8)
            axes.annotate(f"${mark}$", (1.0, curve(1.0)), drop, textcoords="offset points", color=look.colour, weight="bold")
        axes.annotate("none", (0.0, float(curve(0.0))), (7, 2), textcoords="offset points", color=ORANGE, weight="bold")
        axes.plot([0.0], [curve(0.0)], "s", color=ORANGE, zorder=4)
        axes.set(xlabel="scale $t$ of the baseline", title=PROBLEMS[problem].label)
    panels[0].set_ylim(bottom=100.0, auto=None)
    panels[0].set_ylabel(r"$E_x\,$trace Cov$(W\,(Z - C)\mid x)$")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
