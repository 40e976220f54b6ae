"""Three questions of those who train, and what was found."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import (
    BLACK,
    BROWN,
    GREY,
    LANGUAGE_MODEL,
    NORMAL_95,
    PROBLEMS,
    PURPLE,
    SKY,
    Look,
    group_size_axis,
)

PLACE = 1
ABOUT = ""
TABLES = ("efficiency", "race", "trained_drift")
SIZES = (2, 4, 8, 16, 32, 64)
LINES = {"rloo": "-", "grpo": "--"}
ESTIMATOR_NAMES = {"rloo": "RLOO", "grpo": "GRPO"}
FAMILIES = {
    "raw": Look("SmolLM2's head, raw", BLACK, "s", ""),
    "whitened": Look("SmolLM2's head, whitened", SKY, "D", ""),
    "random": Look("64 prompts, random features", PURPLE, ">", ""),
    "made up": Look("four made-up prompts", BROWN, "o", ""),
}
APART, HEADROOM = 0.2, 1.65
"""How far apart the families are at a group size, as a power of 2. The second is the part of the axis that the legend needs."""
MULTIPLES = {"best": "best", "twice": "twice\nthe best", "four times": "four times\nthe best"}
CAPTION = (
    "The left panel shows the efficiency of one step at a fixed number of responses, against how many of them each prompt "
    "gets. The policies are those of SmolLM2 on arithmetic questions with a digit as the answer. The efficiency is exact, "
    "and relative to the best of the leave-one-out mean (RLOO). Solid lines are RLOO, and dashed ones are GRPO, which "
    "divides by the standard deviation. Full marks are the best group sizes. The middle panel shows by how many points of "
    "a hundred success, averaged over a run with Adam, is higher with division than without. Advantages are divided by "
    "their group's standard deviation (grpo) or left undivided (dr_grpo), each at its own best step. A mark is a setting, "
    "and answers have one token. The shaded band is one point either way. The right panel shows by how many points "
    "success at the end is higher with clipped token ratios than without any ratio. Several updates are made from the "
    "responses of one policy. Each mark is a setting (small policies, length of answers and of runs, optimiser, updates "
    "per rollout). Marks are at the best step of each side and at multiples of it. Bars are 95% intervals."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each question."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 3.5))
    group_sizes(left, tables["efficiency"])
    division(middle, tables["race"])
    ratios(right, tables["trained_drift"])
    return figure


def group_sizes(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the exact efficiency of RLOO and GRPO at a fixed number of responses, relative to RLOO's best."""
    efficiency = table[table["quantity"] == "efficiency"]
    for name in (one for one in LANGUAGE_MODEL if one in set(efficiency["problem"])):
        own, look = efficiency[efficiency["problem"] == name], PROBLEMS[name]
        curves = own.pivot(index="group_size", columns="estimator", values="estimate")[list(LINES)]
        relative = curves / curves["rloo"].max()
        marked = [place for place, size in enumerate(relative.index) if size in SIZES]
        for estimator, line in LINES.items():
            style: dict[str, Any] = {
                "markevery": marked,
                "color": look.colour,
                "marker": look.marker,
                "markersize": 3.5,
                "markerfacecolor": "white",
            }
            axes.plot(relative.index, relative[estimator], line, label=look.label if estimator == "rloo" else None, **style)
            axes.plot(relative[estimator].idxmax(), relative[estimator].max(), look.marker, color=look.colour, markersize=6.5)
    group_size_axis(axes, SIZES)
    axes.set_ylim(bottom=0.0)
    axes.set_title("How many responses per prompt?")
    axes.set_ylabel("efficiency (RLOO's best = 1)")
    for estimator, line in LINES.items():
        axes.plot([], [], line, color=GREY, label=ESTIMATOR_NAMES[estimator])
    axes.legend(loc="lower left", fontsize="small")


def division(axes: Axes, table: pd.DataFrame) -> None:
    """Draw what dividing gains under Adam in each setting, against the group size."""
    gains = table.query("quantity == 'plain less' and arm == 'divided' and contest == 'Adam'")
    sizes = sorted(gains["group_size"].unique())
    kinds = gains["family"].where(gains["family"] != "head", gains["problem"].str.split(", ").str[1])
    for place, (family, look) in enumerate(FAMILIES.items()):
        own = gains[kinds == family]
        if own.empty:  # a quick run has fewer
            continue
        places = own["group_size"] * 2.0 ** (APART * (place / (len(FAMILIES) - 1.0) - 0.5) * 2.0)
        style: dict[str, Any] = {"color": look.colour, "markerfacecolor": "white", "elinewidth": 0.8, "label": look.label}
        axes.errorbar(places, -100.0 * own["estimate"], 100.0 * NORMAL_95 * own["standard_error"], fmt=look.marker, **style)
    axes.axhspan(-1.0, 1.0, color=GREY, alpha=0.18, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    group_size_axis(axes, sizes)
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    highest = 100.0 * float((NORMAL_95 * gains["standard_error"] - gains["estimate"]).max())
    axes.set_ylim(top=HEADROOM * max(1.0, highest))
    axes.grid(axis="x", visible=False)
    axes.set_title("Divide by the standard deviation?")
    axes.set_ylabel("gain in success (points)")
    axes.legend(loc="upper left", fontsize="small")


def ratios(axes: Axes, table: pd.DataFrame) -> None:
    """Draw what the clip gains over no ratio at the end of training in each setting, by the multiple of each one's best step."""
    leads = table.query("quantity == 'ahead' and arm == 'clip' and rival == 'none'")
    for place, at in enumerate(MULTIPLES):
        own = leads[leads["at"] == at].sort_values("estimate")
        spread = np.linspace(-0.3, 0.3, len(own)) if len(own) > 1 else np.zeros(1)
        style: dict[str, Any] = {"color": BLACK, "markerfacecolor": "white", "elinewidth": 0.8}
        axes.errorbar(place + spread, 100.0 * own["estimate"], 100.0 * NORMAL_95 * own["standard_error"], fmt="o", **style)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.set_xlim(-0.5, len(MULTIPLES) - 0.5)
    axes.set_xticks(range(len(MULTIPLES)), MULTIPLES.values())
    axes.grid(axis="x", visible=False)
    axes.set_title("Clip the importance ratio?")
    axes.set_xlabel("step size")
    axes.set_ylabel("gain of the clip in success (points)")
