"""What dividing by the standard deviation is worth, at the paper's steps and at each arm's own best."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paper_figures.harness.style import BLUE, GREY, NORMAL_95, ORANGE, VERMILION, Look

PLACE = 390
TABLES = ("race",)
CAPTION = (
    "Points are by how many points of a hundred success, averaged over a training, is higher with advantages divided by "
    "their group's standard deviation than without, with 95% intervals of paired runs. At the paper's steps the divided "
    "updates have another length. With each arm at its own best constant step, under plain ascent or Adam, only what "
    "remains of the difference is shown. The shaded band is one point on either side of 0. Rows are mixtures of prompts "
    "that are easy or hard at the start; columns are the correlations of their features."
)
LOOKS = {
    "printed steps": Look("the paper's steps", ORANGE, "s", ":"),
    "SGD": Look("own best step, plain ascent", BLUE, "o", "-"),
    "Adam": Look("own best step, Adam", VERMILION, "X", "--"),
}
EXACT = 0


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a row for each mixture and a column for each correlation."""
    table = tables["race"].query("quantity == 'plain less' and arm == 'divided'")
    mixtures, correlations = table["mixture"].unique(), sorted(table["correlation"].unique())
    sizes = sorted(table["group_size"].unique(), key=lambda size: np.inf if size == EXACT else size)
    shape = len(mixtures), len(correlations)
    figure, panels = plt.subplots(
        *shape, figsize=(2.2 + 2.2 * shape[1], 1.3 + 1.8 * shape[0]), sharex=True, sharey="row", squeeze=False
    )
    for name, row in zip(mixtures, panels, strict=True):
        for correlation, axes in zip(correlations, row, strict=True):
            part = table[(table["mixture"] == name) & (table["correlation"] == correlation)]
            for shift, (contest, look) in zip(np.linspace(-0.22, 0.22, len(LOOKS)), LOOKS.items(), strict=True):
                own = part[part["contest"] == contest].set_index("group_size")
                own = own.loc[[size for size in sizes if size in own.index]]
                axes.errorbar(
                    [sizes.index(size) + shift for size in own.index],
                    -100.0 * own["estimate"],
                    yerr=100.0 * NORMAL_95 * own["standard_error"],
                    fmt=look.marker,
                    color=look.colour,
                    label=look.label,
                    elinewidth=1.1,
                    linestyle="none",
                )
            axes.axhspan(-1.0, 1.0, color=GREY, alpha=0.18, linewidth=0)
            axes.axhline(0.0, color=GREY, linewidth=0.7)
            axes.grid(axis="x", visible=False)
        row[0].set_ylabel(f"{name}\ngain (points)")
    for correlation, axes in zip(correlations, panels[0], strict=True):
        axes.set_title(f"correlation {correlation:g}")
    for axes in panels[-1]:
        axes.set_xticks(range(len(sizes)), ["exact" if size == EXACT else f"{size}" for size in sizes])
        axes.set_xlim(-0.5, len(sizes) - 0.5)
        axes.set_xlabel("group size $G$")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, 2 * shape[1]))
    return figure
