"""Every registered estimator side by side, a user's own included."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLACK, ESTIMATORS, NORMAL_95, PROBLEMS, Look, size_colours

PLACE = 60
TABLES = ("estimators",)
MARKERS = "osD^vP"
NAMES = {
    "dapo": "DAPO",
    "cispo": "CISPO",
    "gspo": "GSPO",
    "tic_grpo": "TIC-GRPO",
    "grpo_without_ratio": "GRPO without a ratio",
}
"""Estimators that have no look of their own; those that are not here have the name under which they were registered."""
APART = 0.16
"""How far apart the marks of one estimator are, in rows."""


def caption(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say how to read the figure, with the settings of these tables."""
    batches = sorted(tables["estimators"]["batch_size"].unique())
    return (
        f"The efficiency of every registered estimator is shown for a batch of B = {listed(batches)} prompts. Efficiency "
        "is the share of the exact gradient's gain that one step of the estimate's own best length achieves. Upright "
        "strokes are exact values, where enumeration is within reach. Points are simulated, with 95% intervals. "
        "Multiplying an estimator by a factor, which a learning rate undoes, leaves its efficiency unchanged."
    )


def looks(sizes: list[int]) -> dict[int, Look]:
    """Return the look of each group size."""
    markers = (MARKERS[i % len(MARKERS)] for i in range(len(sizes)))
    return {
        size: Look(f"$G$ = {size}", colour, marker, "")
        for (size, colour), marker in zip(size_colours(sizes).items(), markers, strict=True)
    }


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a row for each estimator and a panel for each problem."""
    table = tables["estimators"].query("quantity == 'efficiency'")
    problems, names = list(table["problem"].unique()), list(table["estimator"].unique())
    figure, panels = plt.subplots(
        1, len(problems), figsize=(2.4 + 2.4 * len(problems), 1.2 + 0.32 * len(names)), sharey=True, squeeze=False
    )
    for axes, problem in zip(panels[0], problems, strict=True):
        _panel(axes, table[table["problem"] == problem], names)
        axes.set_title(PROBLEMS[problem].label.replace(", ", ",\n"), fontsize="small")
        axes.set_xlabel("efficiency of one step")
    labels = [ESTIMATORS[name].label if name in ESTIMATORS else NAMES.get(name, name) for name in names]
    panels[0, 0].set_yticks(np.arange(len(names)), labels)
    panels[0, 0].set_ylim(len(names) - 0.4, -0.6)
    exact, *simulated = zip(*panels[0, 0].get_legend_handles_labels(), strict=True)
    figure.legend(*zip(*simulated, exact, strict=True), loc="outside lower center", ncols=6)
    return figure


def _panel(axes: Axes, table: pd.DataFrame, names: list[str]) -> None:
    sizes = sorted(int(size) for size in table["group_size"].unique())
    shifts = APART * (np.arange(len(sizes)) - (len(sizes) - 1) / 2.0)
    for shift, (size, look) in zip(shifts, looks(sizes).items(), strict=True):
        own = table[table["group_size"] == size].set_index("estimator").reindex(names)
        heights = np.arange(len(names)) + shift
        axes.plot(own["prediction"], heights, "|", color=look.colour, markersize=9.0, markeredgewidth=1.6)
        axes.errorbar(
            own["estimate"],
            heights,
            xerr=NORMAL_95 * own["standard_error"],
            fmt=look.marker,
            color=look.colour,
            markerfacecolor="white",
            markersize=4.0,
            elinewidth=1.0,
            label=look.label,
        )
    axes.plot([], [], "|", color=BLACK, markersize=9.0, markeredgewidth=1.6, label="exact")
    axes.set_xlim(left=0.0)
    axes.grid(axis="y", visible=False)
    for border in np.arange(len(names) - 1) + 0.5:
        axes.axhline(border, color="#E3E3E3", linewidth=0.6)
