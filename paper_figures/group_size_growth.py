"""Where the growth of the best group size with the budget comes from.

Left: the mean success of whole runs against the responses that they spend, for groups of {SMALL} and of {LARGE}. Each point is a
mean over draws of one kind of world, at the step of a grid that has the highest mean over draws. "Lent weights" gives each prompt
the weight that division has in groups of {LARGE}. Middle: the difference in success between groups of {LARGE} and of {SMALL}, at
the budget of {LAST:,} responses, paired over draws. Rows are whole GRPO, its parts alone, and cases where something is switched
off. The last row is exact. The kind of world was chosen by another draw, in which the best size grew. Right: the success that a
rule for the group size loses against the best size. This loss is averaged over draws and over the budgets of {SPAN[0]:,} to
{SPAN[1]:,} responses. There the estimator is GRPO, and the worlds are other than those on which the law was made. Error bars
are 95% intervals, which count draws, runs and the choice of the step.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, Look
from paper_figures.content.panels import WORDS, Tables, lengths, marks
from simulations.runs.best_size_law import BUDGETS, LAW
from simulations.runs.group_size_growth import GAIN, LARGE, LAST, SMALL, SUCCESS

PLACE = 9
SPAN = BUDGETS[0], BUDGETS[-1]
TABLES = ("group_size_growth", "best_size_law")
CURVES = {
    ("grpo", SMALL): Look(f"GRPO, {SMALL}", VERMILION, "X", "-"),
    ("grpo", LARGE): Look(f"GRPO, {LARGE}", VERMILION, "o", "--"),
    ("rloo", SMALL): Look(f"undivided (RLOO), {SMALL}", BLUE, "D", "-"),
    ("rloo", LARGE): Look(f"undivided (RLOO), {LARGE}", BLUE, "s", "--"),
    ("lent", SMALL): Look(f"lent weights, {SMALL}", GREEN, "^", "-"),
}
GAINS = {tuple(names.split()): words for names, words in WORDS["gains"].items()}
WORLDS = WORDS["group_size_growth"]
RULES = {
    LAW: ("the law", ORANGE, "o"),
    "loss of always 4": ("always 4", BLACK, "s"),
    "loss of always 16": ("always 16", GREY, "^"),
}


def draw(tables: Tables) -> Figure:
    """Draw the courses, the gains at the end, and what rules for the size lose."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.0, 4.6), gridspec_kw={"width_ratios": [1.15, 1.0, 1.0]})
    for axes, title in ((left, "whole runs"), (middle, "one cause at a time"), (right, "rules for the size")):
        axes.set_title(title, fontsize="small")
    growth, law = tables["group_size_growth"], tables["best_size_law"].query("estimator == 'grpo'")
    _courses(left, growth[growth["quantity"] == SUCCESS].set_index(["world", "arm", "group_size"]).sort_index())
    _gains(middle, growth[(growth["quantity"] == GAIN) & (growth["budget"] == LAST)].set_index(["world", "arm"]))
    _losses(right, law[law["quantity"].isin(list(RULES))])
    return figure


def _courses(axes: Axes, table: pd.DataFrame) -> None:
    for shift, ((arm, size), look) in enumerate(CURVES.items()):
        own = table.loc[("small", arm, size)].sort_values("budget")
        # Moved apart by a hair, so that curves on one another are both seen.
        style = {"fmt": look.marker + look.line, "markerfacecolor": look.colour, "label": look.label}
        marks(axes, own["budget"] * 1.02 ** (shift - 2), own["estimate"], look, yerr=lengths(own), **style)
    axes.set_xscale("log", base=2)
    budgets = sorted(table["budget"].unique())
    axes.set_xticks(budgets, [f"{budget:,.0f}" for budget in budgets])
    axes.set(xlabel="responses spent", ylabel="mean success at the end", ylim=(0.1, 0.75))  # below the curves is the legend
    axes.legend(fontsize="small", loc="lower right", title="estimator, group size", title_fontsize="small", handlelength=3.2)


def _gains(axes: Axes, table: pd.DataFrame) -> None:
    own = table.loc[list(GAINS)]
    places = -np.arange(len(own))
    axes.errorbar(own["estimate"], places, xerr=lengths(own), color=BLACK, fmt="o", markersize=5)
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_yticks(places, list(GAINS.values()))
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(f"gain of groups of {LARGE} over {SMALL}")


def _losses(axes: Axes, table: pd.DataFrame) -> None:
    worlds = list(table["world"].unique())
    for shift, (rule, (label, colour, marker)) in enumerate(RULES.items()):
        own = table[table["quantity"] == rule].set_index("world").loc[worlds]
        places = -np.arange(len(worlds)) - 0.2 * (shift - 1)
        axes.errorbar(own["estimate"], places, xerr=lengths(own), color=colour, fmt=marker, markersize=5, label=label)
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_yticks(-np.arange(len(worlds)), [WORLDS.get(world, world) for world in worlds])
    axes.set_ylim(-len(worlds) - 0.3, 0.5)  # below the marks is the legend
    axes.set_xlabel("success lost to the best size")
    axes.legend(fontsize="small", loc="lower right")
