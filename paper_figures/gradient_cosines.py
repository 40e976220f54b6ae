"""How orthogonal prompts' gradients are at the start, half-way and at the end of training."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLACK, checkpoint_colours
from simulations.normalisation.heads import NEAR
from simulations.normalisation.prompt_cosines import END, PRINTED_NEAR

PLACE = 254
TABLES = ("prompt_cosines",)
PRINTED = listed(f"{share:.0%}" for share in PRINTED_NEAR.values())
CAPTION = (
    "Densities of the cosines between the gradients of all pairs of SmolLM2's questions, few-shot, are on a logarithmic "
    f"scale, while its head is trained to a mean success of {END:g} by exact gradients. Left: in the head's own "
    f"coordinates. Other panels: in features that are whitened with a ridge. Dotted lines are at |cos| = {NEAR:g}, "
    f"within which the legend gives the share of pairs; the paper prints {PRINTED} for a model whose hidden states learn "
    "too."
)
TITLES = {"own": "own coordinates", "ridge 1": "ridge 1", "ridge 0.01": "ridge 0.01"}
LINES = {"start": ":", "middle": "--", "end": "-"}
LEAST = 3e-4
"""Where the axis of densities ends."""


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each system of coordinates and a line for each time."""
    table = tables["prompt_cosines"].query("problem == 'lm-few-shot' and what == 'gradients'")
    figure, panels = plt.subplots(1, len(TITLES), figsize=(9.6, 3.1), sharex=True, sharey=True)
    colours = checkpoint_colours(len(LINES))
    for axes, (coordinates, title) in zip(panels, TITLES.items(), strict=True):
        part = table[table["coordinates"] == coordinates]
        for (time, line), colour in zip(LINES.items(), colours, strict=True):
            own = part[part["time"] == time]
            density = own[own["quantity"] == "density"]
            share = own.loc[own["quantity"] == f"share below {NEAR:g}", "estimate"].iloc[0]
            label = f"success {own['success'].iloc[0]:.2f}: {100 * share:.0f}%"
            axes.plot(density["cosine"], density["estimate"].clip(lower=LEAST / 3), line, color=colour, label=label)
        for limit in (-NEAR, NEAR):
            axes.axvline(limit, color=BLACK, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set(title=title, xlabel="cosine of two gradients", yscale="log", xlim=(-1.0, 1.0), ylim=(LEAST, 3000.0))
        axes.legend(fontsize="x-small", loc="upper center", ncols=1, frameon=True, framealpha=1.0, edgecolor="none")
    panels[0].set_ylabel("density")
    return figure
