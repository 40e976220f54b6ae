"""Clip, ratio or neither, along training: which updates point away, and who is ahead at the end."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RATIOS, VERMILION, Look
from simulations.training.trained_drift import BATCH_SIZE, GROUP_SIZE

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
CAPTION = (
    "Every run makes several updates from the responses of one policy, and uses each response once. The step is constant, "
    "the best of those tried, and the same for all problems of a kind. A batch has "
    f"{BATCH_SIZE} prompts with {GROUP_SIZE} responses each. The left panel "
    "shows the share of exact mean updates that point away from the current gradient, among updates after the first of "
    "their rollout. It is drawn against the share of tokens that the clip by sign drops at these updates. The runs are "
    "those with the clip, and points are means over all updates looked at. The middle panel shows the same for the "
    f"clipped update by kind of problem. A point is drawn where at least {FEWEST} updates were looked at. The right panel "
    "shows by how many points of a hundred success at the end is higher with the clip than without any ratio. Bars are "
    "95% intervals that count problems and the choice of the step. On fixed problems they count runs. Each mark is "
    "a kind of problem, length of runs, optimiser and number of updates per rollout. Marks are at the best step of each "
    "side and at multiples of it."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw what the updates do, for whom, and what comes of it."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.4, 3.6))
    table = tables["trained_drift"]
    looks = table.query("part == 'bin' and arm == 'clip' and quantity == 'away'")
    bins = looks[["above", "up to"]].drop_duplicates().sort_values("up to")
    by_estimator(left, looks, bins)
    by_kind(middle, looks, bins)
    leads(right, table)
    highest = max(left.get_ylim()[1], middle.get_ylim()[1])
    for axes in (left, middle):
        axes.set_ylim(-1.5, 1.05 * highest)
    return figure


def by_estimator(axes: Axes, looks: pd.DataFrame, bins: pd.DataFrame) -> None:
    """Draw for each estimator the share of mean updates that point away, by the share of tokens clipped."""
    for name, look in SHOWN.items():
        _line(axes, looks[looks["estimator"] == name], look, bins)
    _axis(axes, bins)
    axes.set_title("Which updates point away?")
    axes.set_ylabel("mean updates that point away (%)")
    axes.legend(fontsize="small", loc="upper left")


def by_kind(axes: Axes, looks: pd.DataFrame, bins: pd.DataFrame) -> None:
    """Draw the same for the clipped update on each kind of problem."""
    for world, look in KINDS.items():
        part = looks[(looks["world"] == world) & (looks["estimator"] == "clip")]
        if len(part):
            _line(axes, part, look, bins)
    _axis(axes, bins)
    axes.set_title("The clip, by kind of problem")
    axes.legend(fontsize="small", loc="upper left")


def leads(axes: Axes, table: pd.DataFrame) -> None:
    """Draw by how many points the clip is ahead of no ratio in each setting, by how the steps were chosen."""
    rows = table[(table["quantity"] == "ahead") & (table["arm"] == "clip") & (table["rival"] == "none")]
    for place, at in enumerate(STEPS):
        own = rows[rows["at"] == at].sort_values("estimate").reset_index(drop=True)
        spread = place + np.linspace(-0.32, 0.32, len(own)) if len(own) > 1 else np.array([float(place)])
        for name, look in OPTIMISERS.items():
            is_its = (own["optimiser"] == name).to_numpy()
            if not is_its.any():
                continue
            half = 100.0 * (own["high"] - own["estimate"])[is_its]
            style: dict[str, Any] = {"color": look.colour, "markerfacecolor": "white", "linestyle": "none", "elinewidth": 0.8}
            label = look.label if not place else None
            axes.errorbar(spread[is_its], 100.0 * own.loc[is_its, "estimate"], half, fmt=look.marker, label=label, **style)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.set_xlim(-0.5, len(STEPS) - 0.5)
    axes.set_xticks(range(len(STEPS)), STEPS.values())
    axes.grid(axis="x", visible=False)
    axes.set_title("Clip, or no ratio at all?")
    axes.set_ylabel("lead of the clip in success (points)")
    axes.legend(fontsize="small", loc="lower left")


def _line(axes: Axes, looks: pd.DataFrame, look: Look, bins: pd.DataFrame) -> None:
    """Draw the mean over the updates of all settings in each bin, where there are enough."""
    counts = looks.groupby("up to")["looks"].sum().reindex(bins["up to"], fill_value=0)
    away = (looks["estimate"] * looks["looks"]).groupby(looks["up to"]).sum().reindex(bins["up to"], fill_value=0.0)
    shown = 100.0 * away / counts.where(counts >= FEWEST)
    axes.plot(
        range(len(bins)), shown, look.line, marker=look.marker, color=look.colour, markerfacecolor="white", label=look.label
    )


def _axis(axes: Axes, bins: pd.DataFrame) -> None:
    labels = [f"{100.0 * low:g} to {100.0 * high:g}" for low, high in zip(bins["above"], bins["up to"], strict=True)]
    axes.set_xticks(range(len(bins)), labels, rotation=35, ha="right", fontsize="small")
    axes.set_xlabel("tokens clipped (%)")
