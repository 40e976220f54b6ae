"""How soon compositions of ratio and clip reach a level of the objective, each at its own best step size.

The figure shows how soon a level (grey line) is reached. Runs have B = {batches} prompts, G = {groups} responses and {rollouts}
rollouts of m updates each, on fixed problems. Every arm has the best of the constant step sizes around that which a pilot
found. The left panels show means of the exact objective for m = {many}, with 95% intervals. The right panels show differences
of the number of updates to the level, with 95% intervals. They are on the same draws, from the arm with token ratio and clip by
sign. A run that never gets there counts as all its updates. Parts are changed one at a time. GRPO and GSPO as published differ
from that arm in advantages and aggregation besides. {found} Each of these intervals holds by itself. The wider ones of the
verdicts hold together.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from grpo_theory.page.captions import SIDES, listed, sides
from grpo_theory.page.style import BROWN, GREEN, GREY, NORMAL_95, RATIOS, SKY, Look
from paper_figures.content.panels import Tables, curve, marks

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


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    table = tables["time_to_level"]
    rollouts = table.assign(rollouts=table["updates"] // table["inner_steps"])
    names = {"batches": "batch_size", "groups": "group_size", "rollouts": "rollouts"}
    values = {field: listed(sorted(rollouts[name].unique())) for field, name in names.items()}
    return values | {"many": table["inner_steps"].max(), "found": _found(table)}


def draw(tables: Tables) -> Figure:
    """Draw two panels for each problem."""
    table = tables["time_to_level"]
    problems, numbers = table["problem"].unique(), sorted(int(number) for number in table["inner_steps"].unique())
    size = (8.6, 1.1 + 2.8 * len(problems))
    figure, panels = plt.subplots(len(problems), 2, figsize=size, sharex="col", squeeze=False)
    for (left, right), problem in zip(panels, problems, strict=True):
        part = table[table["problem"] == problem]
        shown = part[part["inner_steps"] == numbers[-1]]
        _curves(left, shown)
        left.set_title(TITLES[problem], fontsize="small")
        _differences(right, part)
    panels[0, 1].set_title("paired differences", fontsize="small")
    for axes, label in zip(panels[-1], ("updates", "difference in updates to the level"), strict=True):
        axes.set_xlabel(label)
    handles, _ = panels[0, 0].get_legend_handles_labels()
    if len(numbers) > 1:  # marks that are no arm's
        others = [(f"right: $m$ = {number}", GREY if number == numbers[-1] else "white") for number in numbers]
        handles += [Line2D([], [], color=GREY, ls="", marker="o", mfc=face, label=text) for text, face in others]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize="small")
    return figure


def _found(table: pd.DataFrame) -> str:
    """Say of each arm on which side of 0 the intervals of its differences lie."""
    rows = table[(table["quantity"] == "ablation") & table["arm"].isin(list(DOTS)) & (table["arm"] != BASE)]
    every = "in all settings" if rows.groupby("arm").size().max() > 1 else "in this setting"
    of_arms = sides(rows).groupby(rows["arm"], sort=False).agg(lambda found: found.iloc[0] if found.nunique() == 1 else "")
    words = {side: f"The interval {text} {every} of" for side, text in SIDES.items()}
    words[""] = "It depends on the setting on which side it lies of"
    told = []
    for side, text in words.items():
        arms = of_arms.index[of_arms == side]
        for first in range(0, len(arms), FEW):
            named = listed(f"\u201c{DOTS[arm].label}\u201d" for arm in arms[first : first + FEW])
            told.append(f"{'The same goes for' if first else text} {named}.")
    return " ".join(told)


def _curves(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the mean objective of each arm with its intervals, and the level."""
    axes.axhline(part["level"].iloc[0], color=GREY, linewidth=0.9, zorder=0)
    for arm, look in LOOKS.items():
        rows = part[(part["arm"] == arm) & (part["quantity"] == "objective")].sort_values("update")
        half = NORMAL_95 * rows["standard_error"]
        style = {"fmt": look.line, "marker": look.marker, "elinewidth": 0.9, "capsize": 1.8}
        marks(axes, rows["update"], rows["estimate"], look, yerr=half, **style)
        curve(axes, [], [], look)
    axes.set(ylabel="objective $J$", xticks=np.linspace(0, part["updates"].iloc[0], 5))


def _differences(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the paired differences of each arm from the one with token ratio and clip by sign."""
    rows = part[part["quantity"] == "ablation"].set_index(["inner_steps", "arm"])
    numbers = sorted(part["inner_steps"].unique())
    axes.axvline(0.0, color=GREY, linewidth=0.9, zorder=0)
    for y, (arm, look) in enumerate(DOTS.items()):
        for shift, inner in zip(np.linspace(-0.16, 0.16, len(numbers)) if len(numbers) > 1 else [0.0], numbers, strict=True):
            row = rows.loc[(inner, arm)]
            face = look.colour if inner == numbers[-1] else "white"
            half = NORMAL_95 * row["standard_error"]
            marks(axes, row["estimate"], y + shift, look, xerr=half, markerfacecolor=face, elinewidth=1.1, capsize=2.0)
    axes.set_ylim(len(DOTS) - 0.4, -0.6)
    axes.set_yticks(np.arange(len(DOTS)), [look.label for look in DOTS.values()], fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
