"""Three questions of those who train, and what was found.

The left panel shows the efficiency of one step at a fixed number of responses, against how many of them each prompt gets. The
policies are those of SmolLM2 on arithmetic questions with a digit as the answer. The efficiency is exact, and relative to the
best of the leave-one-out mean (RLOO). Solid lines are RLOO, and dashed ones are GRPO, which divides by the standard deviation.
Full marks are the best group sizes. The middle panel shows by how many points of a hundred success, averaged over a run with
Adam, is higher with division than without. Advantages are divided by their group's standard deviation (grpo) or left undivided
(dr_grpo), each at its own best step. A mark is a setting, and answers have one token. The shaded band is one point either way.
The right panel shows by how many points success at the end is higher with clipped token ratios than without any ratio. Several
updates are made from the responses of one policy, and a row is a setting. It names the number of rollouts and the updates made
with each. Before them stands the length of the answers, which holds for the rows below too. A policy of a range of lengths is
of one problem; the others are of random ones. Each side is at its own best step. Bars are 95% intervals.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, BROWN, GREY, LANGUAGE_MODEL, PROBLEMS, PURPLE, SKY, VERMILION, Look
from paper_figures.content.panels import WORDS, Tables, curve, group_size_axis, lengths, marks

PLACE = 1
ABOUT = ""
TABLES = ("efficiency", "race", "trained_drift", "trained_sizes")
SIZES = (2, 4, 8, 16, 32, 64)
LINES = {"rloo": "-", "grpo": "--"}

FAMILIES = {
    "raw": Look("SmolLM2's head, raw", BLACK, "s", ""),
    "whitened": Look("SmolLM2's head, whitened", SKY, "D", ""),
    "random": Look("64 prompts, random features", PURPLE, ">", ""),
    "made up": Look("four made-up prompts", BROWN, "o", ""),
}
APART, HEADROOM = 0.2, 1.65
"""How far apart the families are at a group size, as a power of 2. The second is the part of the axis that the legend needs."""
KINDS = WORDS["three_questions"]
"""Small policies whose rollouts serve several updates, by the length of their answers; the large one has 200 parameters."""
OPTIMISERS = {"SGD": Look("plain ascent", BLUE, "o", ""), "Adam": Look("Adam", VERMILION, "s", "")}
LOOKS = (12, 96)
"""The first and the last number of updates at which SmolLM2's runs were looked at."""


def draw(tables: Tables) -> Figure:
    """Draw a panel for each question."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.8, 4.8))
    group_sizes(left, tables["efficiency"])
    division(middle, tables["race"])
    ratios(right, tables["trained_drift"], tables["trained_sizes"])
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
            drawn, label = relative[estimator], look.label if estimator == "rloo" else None
            curve(axes, drawn.index, drawn, look._replace(line=line), markevery=marked, markersize=3.5, label=label)
            axes.plot(drawn.idxmax(), drawn.max(), look.marker, color=look.colour, markersize=6.5)
    group_size_axis(axes, SIZES)
    axes.set(ylim=(0.0, None), title="How many responses per prompt?", ylabel="efficiency (RLOO's best = 1)")
    for estimator, line in LINES.items():
        axes.plot([], [], line, color=GREY, label=estimator.upper())
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
        marks(axes, places, -100.0 * own["estimate"], look, yerr=100.0 * lengths(own)[::-1], elinewidth=0.8, label=look.label)
    axes.axhspan(-1.0, 1.0, color=GREY, alpha=0.18, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    group_size_axis(axes, sizes)
    axes.set(xlim=(sizes[0] / 1.5, sizes[-1] * 1.5), ylim=(None, HEADROOM * max(1.0, -100.0 * float(gains["low"].min()))))
    axes.grid(axis="x", visible=False)
    axes.set(title="Divide by the standard deviation?", ylabel="gain in success (points)")
    axes.legend(loc="upper left", fontsize="small")


def ratios(axes: Axes, small: pd.DataFrame, trained: pd.DataFrame) -> None:
    """Draw what the clip gains over no ratio at the end of training in each setting, a named row each, at the best steps."""
    leads = small.query("quantity == 'ahead' and arm == 'clip' and rival == 'none' and at == 'best'")
    names = [f"{KINDS[row.world]}, {row.rollouts} by {row.inner_steps}" for row in leads.itertuples()]
    real = trained.query("quantity == 'lead' and trained == 'adapters' and first == \"PPO's clip\" and second == 'no ratio'")
    real = real[real["update"].isin(LOOKS)]  # early and late
    of_real = [f"SmolLM2, LoRA, {update:.0f} updates" for update in real["update"]]
    leads = pd.concat([leads.assign(row=names), real.assign(row=of_real, optimiser="Adam")])
    rows = list(leads["row"].unique())
    for shift, (optimiser, look) in zip((-0.17, 0.17), OPTIMISERS.items(), strict=True):
        own = leads[leads["optimiser"] == optimiser]
        if own.empty:  # a quick run has fewer
            continue
        style = {"elinewidth": 0.8, "markersize": 3.5, "label": look.label}
        marks(
            axes, 100.0 * own["estimate"], own["row"].map(rows.index).to_numpy() + shift, look, xerr=100.0 * lengths(own), **style
        )
    axes.axvline(0.0, color=GREY, linewidth=0.7)
    policies, _, counts = zip(*(row.rpartition(", ") for row in rows), strict=True)
    first = [place for place, policy in enumerate(policies) if policies[place - 1 : place] != (policy,)]
    axes.set_yticks(range(len(rows)), [row if place in first else counts[place] for place, row in enumerate(rows)])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    for place in first[1:]:
        axes.axhline(place - 0.5, color="#C8C8C8", linewidth=0.6)
    axes.set(title="Clip the importance ratio?", xlabel="gain of the clip in success (points)")
    axes.legend(loc="center right", fontsize="small", frameon=True, facecolor="white", edgecolor="none", framealpha=1.0)
