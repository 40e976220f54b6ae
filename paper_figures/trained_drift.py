"""Clip, ratio or neither, along training: which updates point away, and who is ahead at the end.

Every run makes several updates from the responses of one policy, and uses each response once. The step is constant, the best of
those tried, and the same for all problems of a kind. A batch has {BATCH_SIZE} prompts with {GROUP_SIZE} responses each. The left
panel shows the share of exact mean updates that point away from the current gradient, among updates after the first of their
rollout. It is drawn against the share of tokens that the clip by sign drops at these updates. The runs are those with the clip,
and points are means over all updates looked at. The middle panel shows the same for the clipped update by kind of problem. A
point is drawn where at least {FEWEST} updates were looked at. The right panel shows by how many points of a hundred success at
the end is higher with the clip than without any ratio. Bars are 95% intervals that count problems and the choice of the step. On
fixed problems they count runs. Each mark is a kind of problem, length of runs, optimiser and number of updates per rollout. Marks
are at the best step of each side and at multiples of it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RATIOS, VERMILION, Look
from paper_figures.content.panels import Tables, curve, marks
from simulations.training.trained_drift import BATCH_SIZE, GROUP_SIZE  # noqa: F401, for the caption

PLACE = 205
ABOUT = "T8"
TABLES = ("trained_drift",)
SHOWN = {
    "clip": RATIOS["token, clipped"],
    "trajectory": RATIOS["trajectory, clipped"],
    "none": RATIOS["none"],
    "ratio": RATIOS["token"],
}
KINDS = {
    "eight": Look("8 tokens, 6 parameters", BLACK, "o", "-"),
    "four": Look("4 tokens, 6 parameters", BLUE, "D", "--"),
    "two": Look("2 tokens, 6 parameters", GREEN, "^", "-."),
    "shared": Look("one problem, 1 to 3 tokens", BROWN, "s", "--"),
    "stopping": Look("one problem, 1 to 8 tokens", ORANGE, "v", ":"),
    "large": Look("4 tokens, 200 parameters", PURPLE, "P", "-"),
}
OPTIMISERS = {"SGD": Look("plain ascent", BLUE, "o", ""), "Adam": Look("Adam", VERMILION, "s", "")}
STEPS = {"best": "best\nstep", "twice": "twice\nthat", "four times": "four times\nthat"}
FEWEST = 30
"""Looks in a bin from which a share is drawn."""


def draw(tables: Tables) -> Figure:
    """Draw what the updates do, for whom, and what comes of it."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.4, 3.6))
    looks = tables["trained_drift"].query("part == 'bin' and arm == 'clip' and quantity == 'away'")
    bins = looks[["above", "up to"]].drop_duplicates().sort_values("up to")
    labels = [f"{100.0 * low:g} to {100.0 * high:g}" for low, high in zip(bins["above"], bins["up to"], strict=True)]
    _shares(left, looks, "estimator", SHOWN, bins["up to"])
    _shares(middle, looks[looks["estimator"] == "clip"], "world", KINDS, bins["up to"])
    left.set(title="Which updates point away?", ylabel="mean updates that point away (%)")
    middle.set_title("The clip, by kind of problem")
    highest = max(axes.get_ylim()[1] for axes in (left, middle))
    for axes in (left, middle):
        axes.set_xticks(range(len(bins)), labels, rotation=35, ha="right", fontsize="small")
        axes.set(xlabel="tokens clipped (%)", ylim=(-1.5, 1.05 * highest))
        axes.legend(fontsize="small", loc="upper left")
    _leads(right, tables["trained_drift"].query("quantity == 'ahead' and arm == 'clip' and rival == 'none'"))
    return figure


def _shares(axes: Axes, looks: pd.DataFrame, column: str, shown: dict[str, Look], bins: pd.Series) -> None:
    """Draw a curve for each value of a column: the mean over the updates of all settings in each bin, where there are enough."""
    for name, look in shown.items():
        own = looks[looks[column] == name]
        counts = own.groupby("up to")["looks"].sum().reindex(bins, fill_value=0)
        away = (own["estimate"] * own["looks"]).groupby(own["up to"]).sum().reindex(bins, fill_value=0.0)
        if len(own):
            curve(axes, range(len(bins)), 100.0 * away / counts.where(counts >= FEWEST), look)


def _leads(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw by how many points the clip is ahead of no ratio in each setting, by how the steps were chosen."""
    for place, at in enumerate(STEPS):
        own = rows[rows["at"] == at].sort_values("estimate").reset_index(drop=True)
        spread = place + np.linspace(-0.32, 0.32, len(own)) if len(own) > 1 else np.array([float(place)])
        for name, look in OPTIMISERS.items():
            its = own[own["optimiser"] == name]
            if len(its):
                half, label = 100.0 * (its["high"] - its["estimate"]), None if place else look.label
                marks(axes, spread[its.index], 100.0 * its["estimate"], look, yerr=half, elinewidth=0.8, label=label)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.set_xticks(range(len(STEPS)), STEPS.values())
    axes.grid(axis="x", visible=False)
    axes.set(xlim=(-0.5, len(STEPS) - 0.5), title="Clip, or no ratio at all?", ylabel="lead of the clip in success (points)")
    axes.legend(fontsize="small", loc="lower left")
