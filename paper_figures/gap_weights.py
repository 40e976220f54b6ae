"""How fast the weights of the limit law come up to the oracle's."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paper_figures.gap_quantiles import TITLES
from paper_figures.style import BLUE, GREEN, GREY, PURPLE, VERMILION, Look, exact_line, group_size_axis, log_axis

TABLES = ("limit_law",)
CAPTION = (
    "Largest difference between the weights of the limit law with the leave-one-out and with the oracle estimator, exact, "
    "against the group size at a fixed number of prompts. The grey line falls as G^-2."
)
LOOKS = {
    name: Look(title, colour, marker, "-")
    for (name, title), colour, marker in zip(TITLES.items(), (BLUE, VERMILION, GREEN, PURPLE), "osD^", strict=True)
}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw one panel on log axes."""
    table = tables["limit_law"].query("quantity == 'weights: rloo - oracle'")
    figure, axes = plt.subplots(figsize=(5.0, 3.6))
    for problem, look in LOOKS.items():
        part = table[table["problem"] == problem].sort_values("group_size")
        exact_line(axes, part["group_size"], part["estimate"], look)
        axes.plot(part["group_size"], part["estimate"], look.marker, color=look.colour, markerfacecolor="white")
    sizes = np.array(sorted(table["group_size"].unique()), dtype=float)
    axes.plot(sizes, 0.8 * table["estimate"].max() * (sizes[0] / sizes) ** 2 * 2.0, color=GREY, linewidth=1.0)
    group_size_axis(axes, [int(size) for size in sizes])
    log_axis(axes)
    axes.set_ylabel(r"$\max_k |w_k - w_k^{\mathrm{oracle}}|$")
    axes.legend(fontsize="small", loc="lower left")
    return figure
