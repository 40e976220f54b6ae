"""Zip plots: every interval of a cell, ranked by where the truth lies in it or beyond it.

Zip plots (Morris, White and Crowther 2019) show nominal {LEVEL:.0%} intervals less the truth. Intervals are ranked by where the
truth lies, in widths of the interval. At the foot the truth is far inside, and on top it is far outside. For an interval of a
fixed number of standard errors on either side, this ranks |estimate - truth| in its own standard errors. Blue intervals cover and
orange ones do not. The colours therefore meet at the coverage, which is on the dashed line if it is nominal. Orange intervals all
on one side mean bias or a skew estimate. A dot is an interval of no width. Of the gradient, one component is shown. An arrowhead
marks an interval that is cut at the frame.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from grpo_theory.page.style import GREY, METHODS, SKY, VERMILION
from grpo_theory.plot.coverages import draw_intervals, ranked
from paper_figures.content.panels import Tables

PLACE = 150
TABLES = ("coverage",)
LEVEL = 0.95
CELL = ["target", "problem", "batch_size", "group_size", "component"]
SHOWN = (
    ("value", "half-trained, balanced"),
    ("value", "half-trained, rare"),
    ("gradient", "half-trained, balanced"),
    ("group size", "half-trained, balanced"),
)


def draw(tables: Tables) -> Figure:
    """Draw one row for each cell, and one panel for each interval function."""
    table = tables["coverage"].query("measure == 'zip' and level == @LEVEL")
    cells = [(cell, part) for cell, part in table.groupby(CELL, sort=False) if cell[:2] in SHOWN]
    cells.sort(key=lambda one: SHOWN.index(one[0][:2]))
    width = max(part["interval"].nunique() for _, part in cells)
    size = (1.0 + 2.6 * width, 0.6 + 2.3 * len(cells))
    figure, panels = plt.subplots(len(cells), width, figsize=size, sharex="row", sharey=True, squeeze=False)
    for row, (cell, part) in zip(panels, cells, strict=True):
        groups = list(part.groupby("interval", sort=False))
        frame = _frame(part)
        for axes, (name, rows) in zip(row, groups, strict=False):
            _zip(axes, rows, frame)
            axes.set_title(METHODS.get(str(name), str(name)), fontsize="small")
        for axes in row[len(groups) :]:
            axes.set_visible(False)
        target, problem, batch_size, group_size, _ = cell
        row[0].set_ylabel(f"{target}: {problem},\n$B$ = {batch_size}, $G$ = {group_size}\npercentile", fontsize="small")
    for axes in panels[-1]:
        axes.set_xlabel("limits less the truth", fontsize="small")
    looks: dict[str, Any] = {"covers": (SKY, "-", 4.0), "does not": (VERMILION, "-", 4.0), "nominal coverage": (GREY, "--", 0.9)}
    handles = [Line2D([], [], color=c, linestyle=line, linewidth=w, label=name) for name, (c, line, w) in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(looks), fontsize="small")
    return figure


def _frame(part: pd.DataFrame) -> tuple[float, float]:
    """Return limits of the axis that hold nearly all intervals."""
    ends = part[["low", "high"]].replace([-np.inf, np.inf], np.nan)
    return float(min(ends["low"].quantile(0.01), 0.0)), float(max(ends["high"].quantile(0.97), 0.0))


def _zip(axes: Axes, rows: pd.DataFrame, frame: tuple[float, float]) -> None:
    rows = ranked(rows).dropna(subset=["low", "high"])
    draw_intervals(axes, rows, frame)
    flat = rows[rows["low"] == rows["high"]]
    colours = np.where(flat["covered"].to_numpy(dtype=bool), SKY, VERMILION)
    axes.scatter(flat["low"], flat["percentile"], s=2.0, c=list(colours), linewidths=0.0)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.axhline(100.0 * LEVEL, color=GREY, linewidth=0.9, linestyle="--")
    axes.grid(visible=False)
