"""Every registered estimator side by side, a user's own included.

The efficiency of every registered estimator is shown for a batch of B = {batches} prompts. Efficiency is the share of the exact
gradient's gain that one step of the estimate's own best length achieves. Upright strokes are exact values, where enumeration is
within reach. Points are simulated, with 95% intervals. Multiplying an estimator by a factor, which a learning rate undoes, leaves
its efficiency unchanged.
"""

from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLACK, ESTIMATORS, NORMAL_95, PROBLEMS, Look
from paper_figures.content.panels import WORDS, Tables, line_between_rows, marks, size_colours

PLACE = 60
TABLES = ("estimators",)
MARKERS = "osD^vP"
NAMES = WORDS["estimators"]
"""Estimators that have no look of their own; those that are not here have the name under which they were registered."""
APART = 0.16
"""How far apart the marks of one estimator are, in rows."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    return {"batches": listed(sorted(tables["estimators"]["batch_size"].unique()))}


def looks(sizes: list[int]) -> dict[int, Look]:
    """Return the look of each group size."""
    colours = size_colours(sizes)
    return {size: Look(f"$G$ = {size}", colours[size], marker, "") for size, marker in zip(sizes, cycle(MARKERS), strict=False)}


def draw(tables: Tables) -> Figure:
    """Draw a row for each estimator and a panel for each problem."""
    table = tables["estimators"].query("quantity == 'efficiency'")
    problems, names = list(table["problem"].unique()), list(table["estimator"].unique())
    size = (2.4 + 2.4 * len(problems), 1.2 + 0.32 * len(names))
    figure, panels = plt.subplots(1, len(problems), figsize=size, sharey=True, squeeze=False)
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
        half, style = NORMAL_95 * own["standard_error"], {"markersize": 4.0, "elinewidth": 1.0, "label": look.label}
        marks(axes, own["estimate"], heights, look, xerr=half, **style)
    axes.plot([], [], "|", color=BLACK, markersize=9.0, markeredgewidth=1.6, label="exact")
    axes.set_xlim(left=0.0)
    line_between_rows(axes, len(names))
