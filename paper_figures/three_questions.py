"""Three questions of those who train, and what was found."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.harness.style import (
    BLUE,
    GREY,
    LANGUAGE_MODEL,
    PROBLEMS,
    group_size_axis,
)

PLACE = 1
ABOUT = ""
TABLES = ("efficiency", "race", "trained_drift")
SIZES = (2, 4, 8, 16, 32, 64)
LINES = {"rloo": "-", "grpo": "--"}
ESTIMATOR_NAMES = {"rloo": "RLOO", "grpo": "GRPO"}
CONTESTS = {"printed steps": "the paper's\nsteps", "SGD": "best step,\nplain ascent", "Adam": "best step,\nAdam"}
MULTIPLES = {"best": "best step", "twice": "twice\nthe best", "four times": "four times\nthe best"}
CAPTION = (
    "Left: efficiency of one step at a fixed number of responses, against how many of them each prompt gets, for policies "
    "of SmolLM2 on arithmetic questions with a digit as the answer. It is exact, and relative to the best of the "
    "leave-one-out mean (RLOO). Solid lines are RLOO, dashed ones GRPO, which divides by the standard deviation; marks are "
    "the best group sizes. Middle: by how many points of a hundred success is higher with advantages divided by their "
    "group's standard deviation, with a mark for each setting (difficulty, correlation of prompts, group size), at the "
    "steps of arXiv 2601.23135 and with each side at its own best step. Right: by how many points success at the end is higher "
    "with clipped token ratios than without any ratio, when several updates are made from the responses of one policy. Each "
    "mark is a setting (small policies, length of answers and of runs, optimiser, updates per rollout), at the best step of "
    "each side and at multiples of it."
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
        for estimator, line in LINES.items():
            label = look.label if estimator == "rloo" else None
            axes.plot(relative.index, relative[estimator], line, color=look.colour, label=label)
            axes.plot(relative[estimator].idxmax(), relative[estimator].max(), look.marker, color=look.colour)
    group_size_axis(axes, SIZES)
    axes.set_ylim(bottom=0.0)
    axes.set_title("How many responses per prompt?")
    axes.set_ylabel("efficiency (RLOO's best = 1)")
    for estimator, line in LINES.items():
        axes.plot([], [], line, color=GREY, label=ESTIMATOR_NAMES[estimator])
    axes.legend(loc="lower left", fontsize="small")


def division(axes: Axes, table: pd.DataFrame) -> None:
    """Draw what dividing gains in each setting, by how the steps were chosen."""
    gains = table.query("quantity == 'plain less' and arm == 'divided' and group_size > 0")
    for place, contest in enumerate(CONTESTS):
        points = -100.0 * np.sort(gains.loc[gains["contest"] == contest, "estimate"])
        axes.plot(place + np.linspace(-0.3, 0.3, points.size), points, "o", color=BLUE, markerfacecolor="white")
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.set_xticks(range(len(CONTESTS)), CONTESTS.values())
    axes.grid(axis="x", visible=False)
    axes.set_title("Divide by the standard deviation?")
    axes.set_ylabel("gain in success (points)")


def ratios(axes: Axes, table: pd.DataFrame) -> None:
    """Draw what the clip gains over no ratio at the end of training in each setting, by the multiple of each one's best step."""
    leads = table.query("quantity == 'ahead' and arm == 'clip' and rival == 'none'")
    for place, at in enumerate(MULTIPLES):
        points = 100.0 * np.sort(leads.loc[leads["at"] == at, "estimate"])
        spread = np.linspace(-0.3, 0.3, points.size) if points.size > 1 else np.zeros(1)
        axes.plot(place + spread, points, "o", color=BLUE, markerfacecolor="white")
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.set_xlim(-0.5, len(MULTIPLES) - 0.5)
    axes.set_xticks(range(len(MULTIPLES)), MULTIPLES.values())
    axes.grid(axis="x", visible=False)
    axes.set_title("Clip the importance ratio?")
    axes.set_ylabel("gain of the clip in success (points)")
