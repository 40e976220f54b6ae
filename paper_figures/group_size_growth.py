"""Where the growth of the best group size with the budget comes from."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, NORMAL_95, ORANGE, VERMILION, Look
from simulations.runs.best_size_law import BUDGETS
from simulations.runs.group_size_growth import LARGE, LAST, SMALL

PLACE = 9
TABLES = ("group_size_growth", "best_size_law")
CAPTION = (
    f"Left: the mean success of whole runs against the responses that they spend, for groups of {SMALL} and of {LARGE}. "
    'Each curve has its own best step unless its label says otherwise. "Lent weights" gives each prompt the weight that '
    f"division has in groups of {LARGE}. Middle: the difference in success between groups of {LARGE} and of {SMALL}, at "
    f"the budget of {LAST:,} responses. Rows are whole GRPO, its parts alone, and cases where something is switched off. "
    "Right: the success that a rule for the group size loses against the best size of the same runs. This loss is "
    f"averaged over the budgets of {BUDGETS[0]:,} to {BUDGETS[-1]:,} responses. There the estimator is GRPO, and the "
    "worlds are other than those on which the law was made. Error bars are 95% intervals."
)
CURVES = {
    ("grpo", SMALL): Look(f"GRPO, {SMALL}", VERMILION, "X", "-"),
    ("grpo", LARGE): Look(f"GRPO, {LARGE}", VERMILION, "o", "--"),
    ("same step", LARGE): Look(f"GRPO, {LARGE}, step of {SMALL}", GREY, "P", ":"),
    ("rloo", SMALL): Look(f"undivided (RLOO), {SMALL}", BLUE, "D", "-"),
    ("rloo", LARGE): Look(f"undivided (RLOO), {LARGE}", BLUE, "s", "--"),
    ("lent", SMALL): Look(f"lent weights, {SMALL}", GREEN, "^", "-"),
}
GAINS = {
    ("small", "grpo"): "GRPO",
    ("small", "weights"): "weights alone",
    ("small", "oracle"): "weights alone,\nvalue known",
    ("small", "noise"): "noise alone",
    ("small", "rloo"): "undivided (RLOO)",
    ("small", "dropped"): "GRPO, no-signal\ngroups dropped",
    ("visible", "grpo"): "GRPO, no rare\nanswers",
    ("apart", "grpo"): "GRPO, no\ninterference",
}
WORLDS = {
    "rarer": "rarer right\nanswers",
    "roomy": "more features",
    "more prompts": "more prompts",
    "competing": "two right\nanswers",
    "misled": "prompts that\nmislead",
}
RULES = {"the law": (ORANGE, "////"), "always 4": (GREY, ""), "always 16": ("#C8C8C8", "")}
"""The colour and the hatch of each rule: in grey, the first and the second are near."""


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the courses, the gains at the end, and what rules for the size lose."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.0, 4.6), gridspec_kw={"width_ratios": [1.15, 1.0, 1.0]})
    table = tables["group_size_growth"].set_index(["world", "arm", "group_size", "budget"]).sort_index()
    for axes, title in ((left, "whole runs"), (middle, "one cause at a time"), (right, "rules for the size")):
        axes.set_title(title, fontsize="small")
    _courses(left, table)
    _gains(middle, table)
    _losses(right, tables["best_size_law"].query("estimator == 'grpo' and quantity == 'success'"))
    return figure


def _courses(axes: Axes, table: pd.DataFrame) -> None:
    for shift, ((arm, size), look) in enumerate(CURVES.items()):
        own = table.loc[("small", arm, size)]
        # Moved apart by a hair, so that curves on one another are both seen.
        places, spread = own.index * 1.02 ** (shift - 2), NORMAL_95 * own["standard_error"]
        line = axes.errorbar(places, own["estimate"], spread, color=look.colour, linestyle=look.line, marker=look.marker)
        line.set_label(look.label)
    axes.set_xscale("log", base=2)
    budgets = sorted(table.loc[("small", "grpo", SMALL)].index)
    axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
    axes.set_xlabel("responses spent")
    axes.set_ylabel("mean success at the end")
    axes.set_ylim(0.1, 0.7)  # below the curves is the legend
    axes.legend(fontsize="small", loc="lower right", title="estimator, group size", title_fontsize="small", handlelength=3.2)


def _gains(axes: Axes, table: pd.DataFrame) -> None:
    for place, (world, arm) in enumerate(GAINS):
        large, small = (table.loc[(world, arm, size, LAST)] for size in (LARGE, SMALL))
        error = np.hypot(large["standard_error"], small["standard_error"])
        gain = large["estimate"] - small["estimate"]
        axes.errorbar(gain, -place, xerr=NORMAL_95 * error, color=BLACK, marker="o", linestyle="none", markersize=5)
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_yticks(-np.arange(len(GAINS)), list(GAINS.values()))
    axes.set_xlabel(f"gain of groups of {LARGE} over {SMALL}")


def _losses(axes: Axes, table: pd.DataFrame) -> None:
    worlds = list(table["world"].unique())
    for shift, (rule, (colour, hatch)) in enumerate(RULES.items()):
        losses = [_loss(table[table["world"] == world], rule) for world in worlds]
        places = -np.arange(len(worlds)) - 0.26 * (shift - 1)
        axes.barh(places, losses, 0.24, color=colour, edgecolor="white", hatch=hatch, linewidth=0.0, label=rule)
    axes.set_yticks(-np.arange(len(worlds)), [WORLDS.get(world, world) for world in worlds])
    axes.set_xlabel("success lost to the best size")
    axes.legend(fontsize="small", loc="lower right")


def _loss(table: pd.DataFrame, rule: str) -> float:
    """Return the mean over budgets of what a rule loses."""
    lost = []
    for _, own in table.groupby("budget"):
        at = own.set_index("group_size")
        size = at["merit"].idxmax() if rule == "the law" else int(rule.split()[-1])
        lost.append(at["estimate"].max() - at.loc[size, "estimate"])
    return float(np.mean(lost))
