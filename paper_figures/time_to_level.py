"""How soon compositions of ratio and clip reach a level of the objective, each at its own best step size."""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from grpo_theory.page.captions import SIDES, listed, sides
from grpo_theory.page.style import BROWN, GREEN, GREY, NORMAL_95, RATIOS, SKY, Look

PLACE = 310
ABOUT = "T14"
TABLES = ("time_to_level",)
TITLES = {"sequence-shared": "shared features, 1 to 3 tokens", "stopping": "where to stop, 1 to 8 tokens"}
LOOKS = {
    "no ratio": RATIOS["none"]._replace(label="no ratio, no clip"),
    "TIC": RATIOS["trajectory, clipped"]._replace(label="TIC-GRPO: trajectory ratio, upper-only clip"),
    "neither": RATIOS["token, clipped"]._replace(label="token ratio, clip by sign"),
    "GRPO": Look("GRPO as published", BROWN, "h", "-."),
    "GSPO": RATIOS["geometric"]._replace(label="GSPO as published"),
}
DOTS = {
    "neither": LOOKS["neither"],
    "ratio alone": Look("trajectory ratio, clip by sign", GREY, "v", ""),
    "clip alone": Look("token ratio, upper-only clip", SKY, "D", ""),
    "TIC": LOOKS["TIC"]._replace(label="trajectory ratio, upper-only clip: TIC"),
    "no clip": RATIOS["trajectory"]._replace(label="trajectory ratio, no clip"),
    "no ratio": LOOKS["no ratio"],
    "GSPO, wide clip": Look("GSPO with a clip of 0.2", GREEN, "*", ""),
    "GSPO": LOOKS["GSPO"],
    "GRPO": LOOKS["GRPO"],
}

BASE = "neither"
"""The arm from which the others differ."""
FEW = 2
"""How many arms a sentence of the caption names."""


def caption(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say how to read the figure, with the settings of these tables."""
    table = tables["time_to_level"]
    batches, groups = (sorted(table[name].unique()) for name in ("batch_size", "group_size"))
    rollouts = sorted((table["updates"] // table["inner_steps"]).unique())
    return (
        f"The figure shows how soon a level (grey line) is reached. Runs have B = {listed(batches)} prompts, G = "
        f"{listed(groups)} responses and {listed(rollouts)} rollouts of m updates each, on fixed problems. Every arm has "
        "the best of the constant step sizes around that which a pilot found. The left and middle panels have m = "
        f"{table['inner_steps'].max()}. The left panels show means of the exact objective, with 95% intervals. The middle "
        "panels show the mean number of updates to the level against the step size, with 95% intervals. Small marks are "
        "of the pilot. Large marks are at the best step, on other draws. A run that never gets there counts as all its "
        "updates. The right panels show differences of this number, on the same draws, from the arm with token ratio and "
        "clip by sign, with 95% intervals. Parts are changed one at a time. GRPO and GSPO as published "
        f"differ from that arm in advantages and aggregation besides. {_found(table)} Each of these intervals holds by "
        "itself. The wider ones of the verdicts hold together."
    )


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
        left.set_title(TITLES[problem], fontsize="small")
        left.set_ylabel("objective $J$")
        _step_sizes(middle, shown)
        _differences(right, part)
    panels[0, 1].set_title("choice of the step size", fontsize="small")
    panels[0, 2].set_title("paired differences", fontsize="small")
    panels[-1, 0].set_xlabel("updates")
    panels[-1, 1].set_xlabel("step size")
    panels[-1, 2].set_xlabel("difference in updates")
    handles, _ = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles=handles + _marks(table), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _marks(table: pd.DataFrame) -> list[Line2D]:
    """Return what the legend has of marks that are no arm's: of the middle panel, and of the numbers of updates per rollout."""
    numbers = sorted(int(number) for number in table["inner_steps"].unique())
    looks = [("middle: step sizes of the pilot", ".", GREY), ("middle: best step, on other draws", "o", "white")]
    if len(numbers) > 1:
        looks += [(f"right: $m$ = {number}", "o", GREY if number == numbers[-1] else "white") for number in numbers]
    style: dict[str, Any] = {"color": GREY, "linestyle": "none"}
    return [Line2D([], [], marker=mark, markerfacecolor=face, label=text, **style) for text, mark, face in looks]


def _found(table: pd.DataFrame) -> str:
    """Say of each arm on which side of 0 the intervals of its differences lie."""
    rows = table[(table["quantity"] == "ablation") & table["arm"].isin(list(DOTS)) & (table["arm"] != BASE)]
    settings = rows.groupby("arm").size().max()
    every = "in all settings" if settings > 1 else "in this setting"
    of_arms = sides(rows).groupby(rows["arm"], sort=False).agg(lambda found: found.iloc[0] if found.nunique() == 1 else "")
    told = [
        _short(f"The interval {words} {every} of", arms)
        for side, words in SIDES.items()
        if len(arms := of_arms.index[of_arms == side])
    ]
    if len(mixed := of_arms.index[of_arms == ""]):
        told.append(_short("It depends on the setting on which side it lies of", mixed))
    return " ".join(told)


def _short(told: str, arms: pd.Index) -> str:
    """Say something of arms in sentences that name few of them each."""
    rest = (arms[first : first + FEW] for first in range(FEW, len(arms), FEW))
    return " ".join([f"{told} {_quoted(arms[:FEW])}.", *(f"The same goes for {_quoted(some)}." for some in rest)])


def _quoted(arms: Iterable[str]) -> str:
    return listed(f"\u201c{DOTS[arm].label}\u201d" for arm in arms)


def _curves(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the mean objective of each arm with its intervals, and the level."""
    axes.axhline(part["level"].iloc[0], color=GREY, linewidth=0.9, zorder=0)
    for arm, look in LOOKS.items():
        rows = part[(part["arm"] == arm) & (part["quantity"] == "objective")].sort_values("update")
        half = NORMAL_95 * rows["standard_error"]
        style: dict[str, Any] = {"marker": look.marker, "markerfacecolor": "white", "color": look.colour}
        axes.errorbar(rows["update"], rows["estimate"], yerr=half, fmt=look.line, elinewidth=0.9, capsize=1.8, **style)
        axes.plot([], [], look.line, label=look.label, **style)
    axes.set_xticks(np.linspace(0, part["updates"].iloc[0], 5))


def _step_sizes(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the mean time to the level of each arm against the step size, and where the chosen step is."""
    for arm, look in LOOKS.items():
        own = part[part["arm"] == arm]
        rows = own[own["quantity"] == "pilot"].sort_values("step")
        half = NORMAL_95 * rows["standard_error"]
        style: dict[str, Any] = {
            "color": look.colour,
            "linewidth": 0.9,
            "marker": look.marker,
            "markersize": 3.0,
            "markeredgewidth": 0.0,
        }
        axes.errorbar(
            rows["step"], rows["estimate"], yerr=half, fmt=look.line, ecolor=(look.colour, 0.6), elinewidth=0.7, **style
        )
        chosen = own[own["quantity"] == "time"].iloc[0]
        error = NORMAL_95 * chosen["standard_error"]
        axes.errorbar(
            chosen["step"], chosen["estimate"], yerr=error, fmt=look.marker, color=look.colour, markerfacecolor="white", zorder=4
        )
    axes.set_xscale("log", base=2)
    steps = np.sort(part.loc[part["quantity"] == "pilot", "step"].unique())
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
        for shift, inner in zip(np.linspace(-0.16, 0.16, len(numbers)) if len(numbers) > 1 else [0.0], numbers, strict=True):
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
    axes.set_yticks(np.arange(len(DOTS)), [look.label for look in DOTS.values()], fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
