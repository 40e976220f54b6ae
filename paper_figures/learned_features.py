"""How orthogonal prompts' gradients stay while a network of two layers learns its features."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, VERMILION, Look
from simulations.normalisation.heads import NEAR
from simulations.normalisation.networks import ANSWERS, INPUTS, PROMPTS

PLACE = 258
TABLES = ("learned_features",)
CAPTION = (
    f"The share of pairs of {PROMPTS} prompts whose gradients have |cos| < {NEAR:g} is shown against mean success. The "
    f"policies climb exact gradients. Panels are widths of a network with a hidden layer, {INPUTS} random inputs and "
    f"{ANSWERS} answers. Its features are learned, without division (solid) or with gradients divided by the prompts' "
    "standard deviations (dashed). On dotted lines the features stay those of the start, and the policy is linear. "
    "Markers are at the same numbers of updates in all lines of a panel."
)
LOOKS = {
    "plain": Look("features learned", BLUE, "o", "-"),
    "divided": Look("features learned, divided", VERMILION, "s", "--"),
    "features of the start": Look("features of the start", BLACK, "^", ":"),
}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each width and a line for each policy."""
    table = tables["learned_features"].query("quantity == 'share below 0.1'")
    table = table[table["inputs"] == table["inputs"].min()]
    widths = sorted(table["width"].unique())
    size = (max(6.0, 3.0 * len(widths) + 0.6), 3.4)
    figure, panels = plt.subplots(1, len(widths), figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, width in zip(panels[0], widths, strict=True):
        for arm, look in LOOKS.items():
            part = table[(table["width"] == width) & (table["arm"] == arm)]
            marked = {"marker": look.marker, "markersize": 4.0, "color": look.colour, "label": look.label}
            axes.plot(part["success"], part["estimate"], look.line, **marked)
        axes.set(title=f"width {width:g}", xlabel="mean success", xlim=(0.28, 1.02))
    panels[0][0].set_ylabel(f"share of pairs with |cos| < {NEAR:g}")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LOOKS))
    return figure
