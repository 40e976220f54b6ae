"""How orthogonal prompts' gradients stay while a network of two layers learns its features.

The share of pairs of {PROMPTS} prompts whose gradients have |cos| < {NEAR:g} is shown against mean success. Means are over draws
of inputs, right answers and starts. The policies climb exact gradients. Columns are widths of a network with a hidden layer,
{INPUTS} random inputs and {ANSWERS} answers. Rows are prompts that are easy or hard at the start. The features are learned,
without division (solid) or with gradients divided by the prompts' standard deviations (dashed). On dotted lines the features stay
those of the start, and the policy is linear. Markers are at the same numbers of updates in all lines of a panel.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, VERMILION, Look
from paper_figures.content.panels import Tables
from simulations.normalisation.heads import NEAR
from simulations.normalisation.networks import ANSWERS, INPUTS, PROMPTS  # noqa: F401, for the caption

PLACE = 258
TABLES = ("learned_phases",)
ABOUT = "N11/learned features"
LOOKS = {
    ("learned", "plain"): Look("features learned", BLUE, "o", "-"),
    ("learned", "divided"): Look("features learned, divided", VERMILION, "s", "--"),
    ("of the start", "plain"): Look("features of the start", BLACK, "^", ":"),
}


def draw(tables: Tables) -> Figure:
    """Draw a panel for each width and mixture of prompts, and a line for each policy."""
    table = tables["learned_phases"].set_index(["mixture", "width", "features", "arm", "quantity"]).sort_index()["estimate"]
    mixtures, widths = (table.index.unique(level) for level in ("mixture", "width"))
    size = (max(6.0, 3.0 * len(widths) + 0.6), 1.0 + 2.4 * len(mixtures))
    figure, panels = plt.subplots(len(mixtures), len(widths), figsize=size, sharex=True, sharey=True, squeeze=False)
    for line, mixture in zip(panels, mixtures, strict=True):
        for axes, width in zip(line, widths, strict=True):
            for (features, arm), look in LOOKS.items():
                success, share = (table[mixture, width, features, arm, what] for what in ("success", "orthogonality"))
                marked = {"marker": look.marker, "markersize": 4.0, "color": look.colour, "label": look.label}
                axes.plot(success, share, look.line, **marked)
            axes.set(title=f"width {width:g}, {mixture}", xlim=(0.1, 1.02))
        line[0].set_ylabel(f"share of pairs with |cos| < {NEAR:g}")
    for axes in panels[-1]:
        axes.set_xlabel("mean success")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LOOKS))
    return figure
