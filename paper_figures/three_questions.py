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
    PURPLE,
    RATIOS,
    VERMILION,
    Look,
    group_size_axis,
    log_axis,
)

PLACE = 1
ABOUT = ""
TABLES = ("gradient_error", "race", "drift")
CAPTION = (
    "Left: the error of the gradient at a fixed number of responses, against how many of them each prompt gets, for three "
    "policies of SmolLM2 on arithmetic questions; exact, 1 is the least. Middle: how many points of a hundred success, averaged "
    "over a run with Adam, is higher with advantages divided by their group's standard deviation (grpo) than without (dr_grpo), "
    "each at its own best step. A mark is a setting; answers have one token; the shaded band is less than one point. Right: "
    "cosine of mean update and gradient when several updates are made from the same responses; below 0 the update makes the "
    "policy worse. Medians over random trees of four tokens, the policy having moved along the gradient by a drift."
)
SIZES = (2, 4, 8, 16, 32, 64)
FAMILIES = {
    "raw": Look("SmolLM2's head, raw", VERMILION, "s", ""),
    "whitened": Look("SmolLM2's head, whitened", BLUE, "D", ""),
    "random": Look("64 prompts, random features", PURPLE, ">", ""),
    "made up": Look("four made-up prompts", BLACK, "o", ""),
}
APART, HEADROOM = 0.3, 1.45
"""How far apart the families are at a group size, as a power of 2, and how much of the axis the legend needs beside the marks."""
SHOWN = ("none", "trajectory, clipped", "token, clipped")
HORIZON = 4


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each question."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 3.5))
    group_sizes(left, tables["gradient_error"])
    division(middle, tables["race"])
    ratios(right, tables["drift"])
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
    """Draw what dividing gains under Adam in each setting, against the group size."""
    gains = table.query("quantity == 'plain less' and arm == 'divided' and contest == 'Adam'")
    sizes = sorted(gains["group_size"].unique())
    kinds = gains["family"].where(gains["family"] != "head", gains["problem"].str.split(", ").str[1])
    for place, (family, look) in enumerate(FAMILIES.items()):
        own = gains[kinds == family]
        places = own["group_size"] * 2.0 ** (APART * (place / (len(FAMILIES) - 1.0) - 0.5) * 2.0)
        axes.plot(places, -100.0 * own["estimate"], look.marker, color=look.colour, markerfacecolor="white", label=look.label)
    axes.axhspan(-1.0, 1.0, color=GREY, alpha=0.18, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    group_size_axis(axes, sizes)
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    axes.set_ylim(top=HEADROOM * max(1.0, float(-100.0 * gains["estimate"].min())))
    axes.grid(axis="x", visible=False)
    axes.set_title("Divide by the standard deviation?")
    axes.set_ylabel("gain in success (points)")
    axes.legend(loc="upper left", fontsize="small")


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
