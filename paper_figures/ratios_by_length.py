"""Importance ratios over long responses: how efficient a step off policy is.

The efficiency of one step off policy is shown against the number of tokens of a response. The estimator is the leave-one-out
mean, with several weights of a token. The policy has drifted by {DRIFT:g} nat per response from the one that sampled, in
directions that are drawn as a step's noise. Curves are medians over these directions, and bars span them all. Below zero the mean
update points away from the gradient. Groups have {GROUP} responses, and a batch has {BATCH} prompts. The success rate is
{SUCCESS:g}. All values are exact.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from grpo_theory.page.style import RATIOS
from paper_figures.content.panels import WORDS, Tables
from simulations.length.drifts import NEAR as DRIFT  # noqa: F401, for the caption
from simulations.length.drifts import SUCCESS  # noqa: F401, for the caption
from simulations.length.ratios_by_length import BATCH, GROUP  # noqa: F401, for the caption

PLACE = 215
TABLES = ("ratios_by_length",)
SHOWN = ("none", "token", "token, clipped", "trajectory")
BESIDE = (0.85, 0.95, 1.05, 1.18)
"""By what lengths are multiplied, so that bars stand beside each other."""
TICKS = (16, 64, 256, 1024)


def draw(tables: Tables) -> Figure:
    """Draw a panel for each kind of task."""
    table = tables["ratios_by_length"].query("quantity == 'efficiency'")
    kinds = [kind for kind in WORDS["kinds"] if kind in set(table["kind"])]
    figure, panels = plt.subplots(1, len(kinds), figsize=(1.0 + 2.1 * len(kinds), 3.2), squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        own = table[table["kind"] == kind]
        for name, beside in zip(SHOWN, BESIDE, strict=True):
            look, by_length = RATIOS[name], own[own["ratio"] == name].groupby("length")["estimate"]
            curve = by_length.median()
            places = curve.index * beside
            spans = [curve - by_length.min(), by_length.max() - curve]
            axes.errorbar(
                places, curve, yerr=spans, fmt=look.marker, color=look.colour, ecolor=(look.colour, 0.8), elinewidth=1.0
            )
            axes.plot(places, curve, look.line, marker=look.marker, color=look.colour, label=look.label)
        axes.axhline(0.0, color="black", linewidth=0.6)
        axes.set_xscale("log", base=2)
        ticks = [tick for tick in TICKS if own["length"].min() <= tick <= own["length"].max()]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("tokens of a response")
        axes.set_title(WORDS["kinds"][kind], fontsize="small")
    panels[0, 0].set_ylabel("efficiency of one step")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN))
    return figure
