"""Three questions of those who train, and what was found."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.harness.style import (
    BLACK,
    BLUE,
    DRIFT_TICKS,
    GREY,
    LANGUAGE_MODEL,
    PROBLEMS,
    RATIOS,
    group_size_axis,
)

PLACE = 1
ABOUT = ""
TABLES = ("efficiency", "race", "drift")
SIZES = (2, 4, 8, 16, 32, 64)
LINES = {"rloo": "-", "grpo": "--"}
ESTIMATOR_NAMES = {"rloo": "RLOO", "grpo": "GRPO"}
CONTESTS = {"printed steps": "the paper's\nsteps", "SGD": "best step,\nplain ascent", "Adam": "best step,\nAdam"}
SHOWN = ("none", "trajectory, clipped", "token, clipped")
HORIZON = 4
CAPTION = (
    "Left: efficiency of one step at a fixed number of responses, against how many of them each prompt gets, for policies "
    "of SmolLM2 on arithmetic questions with a digit as the answer. It is exact, and relative to the best of the "
    "leave-one-out mean (RLOO). Solid lines are RLOO, dashed ones GRPO, which divides by the standard deviation; marks are "
    "the best group sizes. Middle: by how many points of a hundred success is higher with advantages divided by their "
    "group's standard deviation, with a mark for each setting (difficulty, correlation of prompts, group size), at the "
    "steps of arXiv 2601.23135 and with each side at its own best step. Right: cosine of mean update and gradient when "
    "several updates are made from the same responses; below 0 the update makes the policy worse. Lines are medians over "
    f"random trees of {HORIZON} tokens, the policy having moved along the gradient by a drift."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each question."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 3.5))
    group_sizes(left, tables["efficiency"])
    division(middle, tables["race"])
    ratios(right, tables["drift"])
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
    """Draw the cosine of the mean update and the gradient against the drift."""
    part = table.query(f"direction == 'learning' and quantity == 'cosine' and horizon == {HORIZON}")
    for name in SHOWN:
        own, look = part[part["estimator"] == name].groupby("drift")["estimate"].median(), RATIOS[name]
        axes.plot(own.index, own, look.line, marker=look.marker, color=look.colour, markerfacecolor="white", label=look.label)
    axes.axhline(0.0, color=BLACK, linewidth=0.7)
    axes.set_xscale("log")
    axes.set_xticks(DRIFT_TICKS, [f"{drift:g}" for drift in DRIFT_TICKS])
    axes.minorticks_off()
    axes.set_title("Which importance ratio?")
    axes.set_xlabel(r"drift of the policy $\|\theta - \theta_{\mathrm{old}}\|$")
    axes.set_ylabel("cosine with the gradient")
    axes.set_ylim(bottom=-1.1)
    axes.legend(loc="lower left", fontsize="small")
