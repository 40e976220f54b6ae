"""Bias and noise of the update off policy, against how far the policy has moved, for every importance ratio.

The current policy has moved along the gradient, by a drift, from the policy that sampled the responses. A token's log ratio is at
most twice the drift. The upper row shows the length of the bias about the current gradient, relative to that gradient. Biases
below {LEAST:g} are not drawn. The middle row shows the cosine of mean update and current gradient. Below 0 the mean update makes
the policy worse. The lower row shows the standard deviation of one group's update (G = {GROUP_SIZE}, leave-one-out), relative to
the gradient. Ratios are clipped at {CLIP[0]:g} and {CLIP[1]:g}. Lines are medians over random trees with {VOCABULARY_SIZE}
tokens to choose from and {DIMENSION} parameters, each computed exactly. A single step puts each policy at its drift.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, RATIOS
from paper_figures.content.panels import Tables, log_axis, ticks
from simulations.sequence.drift import DIMENSION, GROUP_SIZE, HIGH, VOCABULARY_SIZE  # noqa: F401, for the caption

PLACE = 200
TABLES = ("drift",)
HORIZONS = (2, 4, 8)
QUANTITIES = {"to current": "bias / gradient", "cosine": "cosine with gradient", "variance": "noise / gradient"}
CLIP = 1.0 - HIGH, 1.0 + HIGH
LEAST = 3e-3
"""Where the axis of biases ends."""
MARKED = 2
"""Every second of the exact points has a marker, to tell the lines apart."""


def draw(tables: Tables) -> Figure:
    """Draw a row for each quantity and a column for each horizon."""
    table = tables["drift"].dropna(subset="quantity")
    horizons = [horizon for horizon in HORIZONS if (table["horizon"] == horizon).any()]
    drifts = sorted(table["drift"].unique())
    size = (3.1 * len(horizons), 7.0)
    figure, panels = plt.subplots(len(QUANTITIES), len(horizons), figsize=size, sharex=True, sharey="row", squeeze=False)
    for column, horizon in zip(panels.T, horizons, strict=True):
        part = table[table["horizon"] == horizon]
        medians = part.set_index(["quantity", "estimator", "drift"])["estimate"].sort_index()
        for axes, quantity in zip(column, QUANTITIES, strict=True):
            for name, look in RATIOS.items():
                values = medians[quantity, name].to_numpy()
                shown = np.sqrt(values) if quantity == "variance" else values
                shown = np.where(shown >= LEAST, shown, np.nan) if quantity == "to current" else shown
                style = {"marker": look.marker, "markerfacecolor": "white", "markevery": MARKED}
                axes.plot(drifts, shown, look.line, color=look.colour, label=look.label, **style)
        column[0].set_title(f"{horizon} tokens")
        column[-1].set(xlabel="drift $\\|\\theta_k-\\theta_0\\|$", xscale="log")
        ticks(column[-1].xaxis, (0.03, 0.1, 0.3, 1.0))
        column[1].axhline(0.0, color=BLACK, linewidth=0.7)
    for row, label in zip(panels, QUANTITIES.values(), strict=True):
        row[0].set_ylabel(label)
    panels[0, 0].set_yscale("log")
    panels[0, 0].yaxis.set_major_formatter("{x:g}")
    panels[0, 0].set_ylim(bottom=LEAST)
    log_axis(panels[2, 0])
    columns = min(len(horizons), 3)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure
