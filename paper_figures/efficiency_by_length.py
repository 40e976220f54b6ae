"""Which group size, by the length of responses and the kind of task.

Top: the efficiency of the leave-one-out mean (RLOO) against the group size, as a share of its efficiency at the best group size.
Each curve is for one number of tokens per response. Bottom: the most efficient group size against the number of tokens. The
largest size that was tried is {LARGEST:,}. All values are exact, for one step of {RESPONSES:,} responses at a success
rate of {SUCCESS:g}. When copying or walking to a goal, credit lies with all tokens. When thinking until sure, it lies with the
tokens before the response stops. For letters of a text, it lies with the last few tokens. Success at copying requires a policy
that is sure of each token. In the top row, curves that lie on one another are drawn as one.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BROWN, ESTIMATORS, Look
from paper_figures.content.panels import WORDS, Tables, group_size_axis
from simulations.gradient.groups import RESPONSES  # noqa: F401, for the caption
from simulations.length.efficiency_by_length import GROUP_SIZES
from simulations.length.grid import RATES

PLACE = 8
SUCCESS, LARGEST = RATES[0], GROUP_SIZES[-1]
TABLES = ("efficiency_by_length",)
LOOKS = {
    "rloo": ESTIMATORS["rloo"],
    "trl_grpo": ESTIMATORS["grpo"]._replace(label="GRPO as in TRL, tokens added up"),
    "trl_grpo_loss": Look("GRPO as in TRL, divided by the length", BROWN, "^", ":"),
}
TICKS = (2, 16, 128, 1024)
MARKERS = "osD^vP"
"""Of lengths, whose colours are near in grey."""


def draw(tables: Tables) -> Figure:
    """Draw two panels for each kind of task."""
    table = tables["efficiency_by_length"].query("success == @SUCCESS")
    kinds = [kind for kind in WORDS["kinds"] if kind in set(table["kind"])]
    figure, panels = plt.subplots(2, len(kinds), figsize=(1.0 + 2.1 * len(kinds), 5.0), sharey="row", squeeze=False)
    for upper, lower, kind in zip(*panels, kinds, strict=True):
        own = table[table["kind"] == kind]
        shares(upper, own[own["estimator"] == "rloo"])
        upper.set_title(WORDS["kinds"][kind], fontsize="small")
        best_sizes(lower, own)
    panels[0, 0].set_ylabel("share of the best efficiency")
    panels[1, 0].set_ylabel("best group size")
    panels[0, -1].legend(title="tokens", fontsize="x-small", title_fontsize="x-small", loc="lower right")
    figure.legend(*panels[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LOOKS))
    return figure


def shares(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the efficiency over the best one against the group size, a curve a length, the darker the longer."""
    lengths = sorted(table["length"].unique())
    colours = plt.get_cmap("viridis_r")(np.linspace(0.15, 0.95, len(lengths)))
    for length, colour, marker in zip(lengths, colours, MARKERS, strict=False):
        own = table[table["length"] == length].set_index("group_size")["estimate"].sort_index()
        axes.plot(own.index, own / own.max(), "-", marker=marker, markersize=3.5, color=colour, label=f"{int(length):,}")
    group_size_axis(axes, TICKS)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(0.4, 1.03)


def best_sizes(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the group size of most efficiency against the length, a curve an estimator."""
    for shift, (name, look) in enumerate(LOOKS.items()):
        own = table[table["estimator"] == name]
        best = own.loc[own.groupby("length")["estimate"].idxmax()].set_index("length")["group_size"].sort_index()
        # Curves that coincide are moved apart by a hair, so that all are seen.
        axes.plot(best.index, best * 1.06 ** (shift - 1), look.line, marker=look.marker, color=look.colour, label=look.label)
    axes.set_xscale("log", base=2)
    axes.set_xticks([16, 128, 1024], ["16", "128", "1,024"])
    axes.set_yscale("log", base=2)
    axes.set_yticks(TICKS, [f"{size:,}" for size in TICKS])
    axes.minorticks_off()
    axes.set_xlabel("tokens of a response")
