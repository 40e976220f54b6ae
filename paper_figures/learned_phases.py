"""Phases of training with division where features are learned, and what division gains where they stay those of the start.

Networks with a hidden layer climb exact gradients on {PROMPTS} prompts; lines are means over draws of inputs, right answers and
starts. Each prompt has {ANSWERS} answers. Of these, {RIGHT[easy]} are right if the prompt is easy, and {RIGHT[hard]} if it is
hard. Columns are widths and kinds of prompts. The upper row shows by how many points of a hundred success is ahead of plain
training with division. Gradients are divided by the prompts' standard deviations. Lines are for features that are learned and for
those of the start. Without division, the lower row shows the mean deviation relative to its highest. It also shows the share of
pairs of prompts whose gradients have |cos| < {NEAR:g}. Shaded windows are phases that the criterion of docs/derivations.md, 32,
finds where features are learned; it finds none in windows left white.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from grpo_theory.page.style import BLACK, BLUE, GREEN, ORANGE, PHASES, PURPLE
from paper_figures.content.panels import Tables, ticks
from paper_figures.content.phase_windows import shade, shade_of, tell
from simulations.normalisation.heads import NEAR
from simulations.normalisation.networks import ANSWERS, PROMPTS, RIGHT  # noqa: F401, for the caption
from simulations.normalisation.phases import ORTHOGONAL

PLACE = 259
TABLES = ("learned_phases",)
COLUMNS = ((4, "easy"), (4, "hard"), (64, "easy"), (64, "hard"))
KINDS = {"learned": ("features learned", "-", BLUE), "of the start": ("features of the start", "--", BLACK)}
FIRST = 2.5
"""Where the start is drawn on an axis of logarithms."""


def draw(tables: Tables) -> Figure:
    """Draw a column for each network, with what division gains above what phases are read from."""
    table = tables["learned_phases"].set_index(["width", "mixture"]).sort_index(kind="stable")
    columns = [key for key in COLUMNS if key in table.index]
    size = (max(6.4, 2.3 * len(columns) + 0.6), 5.0)
    figure, panels = plt.subplots(2, len(columns), figsize=size, sharex=True, sharey="row", squeeze=False)
    for (above, below), key in zip(panels.T, columns, strict=True):
        _draw_column(above, below, table.loc[key])
        above.set_title(f"width {key[0]:g}, {key[1]}", fontsize="small")
    panels[0, 0].set_ylabel("gain of division, points")
    panels[1, 0].set_ylabel("share, relative deviation")
    handles = {label: handle for axes in panels[:, 0] for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles |= {f"phase {name}": Patch(**shade_of(name)) for name in PHASES}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _draw_column(above: Axes, below: Axes, part: pd.DataFrame) -> None:
    """Draw one network."""
    at = part[part["quantity"] != "increase"].set_index(["features", "arm", "quantity"]).sort_index(kind="stable")
    for features, (label, line, colour) in KINDS.items():
        gain = at.loc[(features, "divided", "advantage")]
        above.plot(gain["update"].clip(lower=FIRST), 100.0 * gain["estimate"], line, color=colour, label=label)
    above.axhline(0.0, color=BLACK, linewidth=0.7)
    curves = {"deviation": ("deviation / highest", GREEN, "-"), "orthogonality": (f"share with |cos| < {NEAR:g}", PURPLE, "-.")}
    for quantity, (label, colour, line) in curves.items():
        curve = at.loc[("learned", "plain", quantity)]
        highest = curve["estimate"].max() if quantity == "deviation" else 1.0
        below.plot(curve["update"].clip(lower=FIRST), curve["estimate"] / highest, line, color=colour, label=label)
    frozen = at.loc[("of the start", "plain", "orthogonality")]
    below.plot(frozen["update"].clip(lower=FIRST), frozen["estimate"], "--", color=ORANGE, label="share, features of the start")
    below.axhline(ORTHOGONAL, color=PURPLE, linewidth=0.5, label="near-orthogonal from here")
    windows = part[(part["quantity"] == "increase") & (part["arm"] == "divided") & (part["features"] == "learned")]
    updates = sorted(at["update"].dropna().unique())
    tell(below, windows, FIRST)
    for axes in (above, below):
        shade(axes, windows, FIRST)
        axes.set(xscale="log", xlim=(FIRST, updates[-1]))
        ticks(axes.xaxis, [FIRST, *updates[1::2]], FuncFormatter(lambda update, _: f"{update if update > FIRST else 0:g}"))
        axes.grid(False)
    below.set(ylim=(0.0, 1.05), xlabel="updates")
