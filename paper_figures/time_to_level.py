"""How soon compositions of ratio and clip reach a level of the objective, each at its own best step size."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from paper_figures.harness.style import BLACK, BLUE, BROWN, GREEN, GREY, NORMAL_95, ORANGE, PURPLE, SKY, VERMILION, Look

PLACE = 310
ABOUT = "T14"
TABLES = ("time_to_level",)
CAPTION = (
    "How soon a level (grey line) is reached with B = 16 prompts, G = 8 responses and 16 rollouts of m updates each, every "
    "arm at its own best constant step size, which was chosen on other seeds. Left: the exact objective, mean and 95% band. "
    "Middle: the mean number of updates to the level against the step size, with 95% intervals, on the seeds of the choice "
    "(lines) and at the chosen step on those of the judgement (markers); a run that never gets there counts as all updates. "
    "Right: paired differences of that number from the arm with token ratio and clip by sign, with 95% intervals, as parts "
    "are changed one at a time; GRPO and GSPO as published differ from it in advantages and aggregation besides. The upper- "
    "only clip helps, the trajectory ratio hardly does, and what drops ratio and clip altogether is the first at the level."
)
TITLES = {"sequence-shared": "shared features, 1 to 3 tokens", "stopping": "where to stop, 1 to 8 tokens"}
LOOKS = {
    "no ratio": Look("no ratio, no clip", GREEN, "^", "-"),
    "TIC": Look("TIC-GRPO: trajectory ratio, upper-only clip", BLUE, "D", "-"),
    "neither": Look("token ratio, clip by sign", BLACK, "o", "--"),
    "GRPO": Look("GRPO as published", VERMILION, "X", "-."),
    "GSPO": Look("GSPO as published", ORANGE, "s", ":"),
}
DOTS = {
    "neither": Look("token ratio, clip by sign", BLACK, "o", ""),
    "ratio alone": Look("trajectory ratio, clip by sign", PURPLE, "v", ""),
    "clip alone": Look("token ratio, upper-only clip", SKY, "P", ""),
    "TIC": Look("trajectory ratio, upper-only clip: TIC", BLUE, "D", ""),
    "no clip": Look("trajectory ratio, no clip", BROWN, "h", ""),
    "no ratio": Look("no ratio, no clip", GREEN, "^", ""),
    "GSPO, wide clip": Look("GSPO with a clip of 0.2", GREY, "*", ""),
    "GSPO": Look("GSPO as published", ORANGE, "s", ""),
    "GRPO": Look("GRPO as published", VERMILION, "X", ""),
}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw three panels for each problem."""
    table = tables["time_to_level"]
    problems = table["problem"].unique()
    size = (10.4, 1.0 + 2.5 * len(problems))
    figure, panels = plt.subplots(len(problems), 3, figsize=size, width_ratios=(1.0, 1.0, 0.9), sharex="col", squeeze=False)
    many = table["inner_steps"].max()
    for (left, middle, right), problem in zip(panels, problems, strict=True):
        part = table[table["problem"] == problem]
        shown = part[part["inner_steps"] == many]
        _curves(left, shown)
        left.set_title(f"{TITLES[problem]}, $m = {many}$", fontsize="small")
        left.set_ylabel("objective $J$")
        _step_sizes(middle, shown)
        _differences(right, part)
    panels[0, 1].set_title(f"choice of the step size, $m = {many}$", fontsize="small")
    panels[0, 2].set_title("paired differences", fontsize="small")
    panels[-1, 0].set_xlabel("updates")
    panels[-1, 1].set_xlabel("step size")
    panels[-1, 2].set_xlabel("difference in updates to the level")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _curves(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the mean objective of each arm with its band, and the level."""
    axes.axhline(part["level"].iloc[0], color=GREY, linewidth=0.9, zorder=0)
    for arm, look in LOOKS.items():
        rows = part[(part["arm"] == arm) & (part["quantity"] == "objective")].sort_values("update")
        half = NORMAL_95 * rows["standard_error"]
        low, high = rows["estimate"] - half, rows["estimate"] + half
        axes.fill_between(rows["update"], low, high, color=look.colour, alpha=0.2, linewidth=0.0)
        axes.plot(
            rows["update"],
            rows["estimate"],
            look.line,
            marker=look.marker,
            markerfacecolor="white",
            color=look.colour,
            label=look.label,
        )
    axes.set_xticks(np.linspace(0, part["updates"].iloc[0], 5))


def _step_sizes(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the mean time to the level of each arm against the step size, and where the chosen step is."""
    for arm, look in LOOKS.items():
        own = part[part["arm"] == arm]
        rows = own[own["quantity"] == "tuning"].sort_values("step")
        axes.plot(rows["step"], rows["estimate"], look.line, color=look.colour)
        half = NORMAL_95 * rows["standard_error"]
        axes.vlines(rows["step"], rows["estimate"] - half, rows["estimate"] + half, color=look.colour, linewidth=0.7, alpha=0.6)
        chosen = own[own["quantity"] == "time"].iloc[0]
        error = NORMAL_95 * chosen["standard_error"]
        axes.errorbar(
            chosen["step"], chosen["estimate"], yerr=error, fmt=look.marker, color=look.colour, markerfacecolor="white", zorder=4
        )
    axes.set_xscale("log", base=2)
    steps = np.sort(part.loc[part["quantity"] == "tuning", "step"].unique())
    axes.xaxis.set_major_locator(FixedLocator(steps[::2].tolist()))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("updates to the level")


def _differences(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the paired differences of each arm from the one with token ratio and clip by sign."""
    rows = part[part["quantity"] == "ablation"].set_index(["inner_steps", "arm"])
    numbers = sorted(part["inner_steps"].unique())
    axes.axvline(0.0, color=GREY, linewidth=0.9, zorder=0)
    for y, (arm, look) in enumerate(DOTS.items()):
        for shift, inner in zip(np.linspace(-0.16, 0.16, len(numbers)), numbers, strict=True):
            row = rows.loc[(inner, arm)]
            axes.errorbar(
                row["estimate"],
                y + shift,
                xerr=NORMAL_95 * row["standard_error"],
                fmt=look.marker,
                color=look.colour,
                markerfacecolor=look.colour if inner == numbers[-1] else "white",
                elinewidth=1.1,
                capsize=2.0,
            )
    axes.set_ylim(len(DOTS) - 0.4, -0.6)
    axes.yaxis.tick_right()
    axes.spines["left"].set_visible(False)
    axes.set_yticks(np.arange(len(DOTS)), [look.label for look in DOTS.values()], fontsize="small")
    for inner in numbers:
        fill = GREY if inner == numbers[-1] else "white"
        axes.plot([], [], "o", color=GREY, markerfacecolor=fill, label=f"$m = {inner}$")
    axes.legend(fontsize="small", loc="lower left")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
