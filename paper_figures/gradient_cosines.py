"""How orthogonal prompts' gradients are at the start, half-way and at the end of training.

Each panel shows, on a logarithmic scale, densities of the cosines between the gradients of all pairs of SmolLM2's questions,
few-shot. The densities are taken while its head is trained to a mean success of {END:g} by exact gradients. Left: in the head's
own coordinates. Other panels: in features that are whitened with a ridge. Dotted lines are at |cos| = {NEAR:g}, and the legend
gives the share of pairs between them. The paper prints shares of {PRINTED} for a model whose hidden states learn too.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLACK
from paper_figures.content.panels import Tables, checkpoint_colours
from simulations.normalisation.heads import NEAR
from simulations.normalisation.prompt_cosines import END, PRINTED_NEAR  # noqa: F401, for the caption

PLACE = 254
TABLES = ("prompt_cosines",)
PRINTED = listed(f"{share:.0%}" for share in PRINTED_NEAR.values())
TITLES = {"own": "own coordinates", "ridge 1": "ridge 1", "ridge 0.01": "ridge 0.01"}
LINES = {"start": ":", "middle": "--", "end": "-"}
LEAST, LINES_END, MOST = 3e-4, 30.0, 9000.0
"""Where the axis of densities begins, the dotted lines end below the legend, and the axis ends."""


def draw(tables: Tables) -> Figure:
    """Draw a panel for each system of coordinates and a line for each time."""
    table = tables["prompt_cosines"].query("problem == 'lm-few-shot'")
    figure, panels = plt.subplots(1, len(TITLES), figsize=(9.6, 3.1), sharex=True, sharey=True)
    colours = checkpoint_colours(len(LINES))
    for axes, (coordinates, title) in zip(panels, TITLES.items(), strict=True):
        part = table[table["coordinates"] == coordinates]
        for (time, line), colour in zip(LINES.items(), colours, strict=True):
            own = part[part["time"] == time]
            density = own[own["statement"] == ""]
            share = own.loc[own["statement"] != "", "estimate"].iloc[0]
            label = f"{density['success'].iloc[0]:.2f}: {100 * share:.0f}%"
            axes.plot(density["cosine"], density["estimate"].clip(lower=LEAST / 3), line, color=colour, label=label)
        axes.vlines((-NEAR, NEAR), LEAST, LINES_END, color=BLACK, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set(title=title, xlabel="cosine of two gradients", yscale="log", xlim=(-1.0, 1.0), ylim=(LEAST, MOST))
        axes.set_xticks((-1.0, -0.5, 0.0, 0.5, 1.0), ("\u22121", "\u22120.5", "0", "0.5", "1"))
        title = f"mean success: |cos| < {NEAR:g}"
        axes.legend(fontsize="x-small", loc="upper center", title=title, title_fontsize="x-small")
    panels[0].set_ylabel("density")
    return figure
