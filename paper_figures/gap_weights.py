"""The weights of the limit law: how fast they come up to the oracle's, and when they make the gap normal.

Panel (a) shows the largest difference between the limit law's weights with the leave-one-out estimator and with the oracle, at a
fixed number of prompts. Its coloured lines are in closed form, and its points enumerate all groups. The grey line in (a) has the
slope of G^-2. Panel (b) shows the largest distance between the distribution functions of the standardised gap and of the normal
law. Its points are exact, and its line is what the gap's skewness predicts.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLUE, GREEN, GREY, PURPLE, TRAINING, VERMILION, Look
from paper_figures.content.panels import Tables, exact_line, group_size_axis, log_axis

PLACE = 90
TABLES = ("gap_weights", "gap_asymptotics")
LOOKS = {
    name: Look(TRAINING[name], colour, marker, "-")
    for name, colour, marker in (
        ("kl-tabular", BLUE, "o"),
        ("kl-linear", VERMILION, "s"),
        ("conflict", GREEN, "D"),
        ("single", PURPLE, "^"),
    )
}


def draw(tables: Tables) -> Figure:
    """Draw two panels on log axes."""
    table = tables["gap_weights"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.9))
    differences, curves = (table[table["quantity"] == name] for name in ("rloo - oracle", "rloo - oracle, closed form"))
    for problem, look in LOOKS.items():
        curve, part = (one[one["problem"] == problem].sort_values("group_size") for one in (curves, differences))
        exact_line(left, curve["group_size"], curve["estimate"], look)
        left.plot(part["group_size"], part["estimate"], look.marker, color=look.colour, markerfacecolor="white")
    sizes = np.array(sorted(differences["group_size"].unique()), dtype=float)
    left.plot(sizes, 1.6 * differences["estimate"].max() * (sizes[0] / sizes) ** 2, color=GREY, linewidth=1.0, label="slope $-2$")
    group_size_axis(left, [int(size) for size in sizes])
    log_axis(left)
    left.set_ylabel(r"largest difference, $\max_k |w_k - w_k^{\mathrm{oracle}}|$", fontsize="small")
    distances = tables["gap_asymptotics"].query("quantity == 'distance'").sort_values("prompts")
    right.plot(distances["prompts"], distances["prediction"], "-", color=GREY, label=r"skewness$\,/\,6\sqrt{2\pi}$")
    right.plot(distances["prompts"], distances["estimate"], "o", color=BLUE, markerfacecolor="white", label="exact")
    group_size_axis(right, [2, 4, 8, 16, 32, 64])
    log_axis(right)
    right.set_xlabel("prompts (two weights each)")
    right.set_ylabel("distance from the normal law", fontsize="small")
    right.legend(fontsize="small", loc="lower left")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    left.set_title("(a) weights against the oracle's", fontsize="small", loc="left")
    right.set_title("(b) law of the gap against a normal law", fontsize="small", loc="left")
    return figure
