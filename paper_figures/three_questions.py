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
    log_axis,
)

PLACE = 1
ABOUT = ""
TABLES = ("gradient_error", "race", "trained_drift")
CAPTION = (
    "Left: the error of the gradient at a fixed number of responses, against how many of them each prompt gets, for three "
    "policies of SmolLM2 on arithmetic questions; exact, 1 is the least. Middle: how many points of a hundred success is higher "
    "with advantages divided by their group's standard deviation, one mark for each setting (difficulty, correlation of prompts, "
    "group size); at the steps of arXiv 2601.23135, and with each side at its own best step. "
    "Right: by how many points success at the end is higher with clipped token ratios than without any ratio, when several "
    "updates are made from the responses of one policy; one mark for each setting (small policies on answers of one to eight "
    "tokens, length of runs, optimiser, updates a rollout); both at their own best step, at twice and at four times that."
)
SIZES = (2, 4, 8, 16, 32, 64)
CONTESTS = {"printed steps": "the paper's\nsteps", "SGD": "best step,\nplain ascent", "Adam": "best step,\nAdam"}
MULTIPLES = {"best": "best step", "twice": "twice\nthe best", "four times": "four times\nthe best"}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each question."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 3.5))
    group_sizes(left, tables["gradient_error"])
    division(middle, tables["race"])
    ratios(right, tables["trained_drift"])
    return figure


def group_sizes(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the exact error at a fixed number of responses, from its three constants."""
    sizes = np.arange(SIZES[0], SIZES[-1] + 1)
    for name in LANGUAGE_MODEL:
        c1, c2, c3 = table.loc[table["problem"] == name, ["c1", "c2", "c3"]].iloc[0]
        cost, look = c1 * sizes + c2 + c3 / (sizes - 1), PROBLEMS[name]
        axes.plot(sizes, cost / cost.min(), look.line, color=look.colour, label=look.label)
        axes.plot(sizes[cost.argmin()], 1.0, look.marker, color=look.colour)
    log_axis(axes)
    group_size_axis(axes, SIZES)
    axes.set_title("How many responses a prompt?")
    axes.set_ylabel("error at equal cost (best = 1)")
    axes.legend()


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
