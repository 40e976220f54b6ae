"""Which group size trains the best policy: U-curves at the checkpoints of training.

The vertical axis is the loss of the learned policy against the noise-free run, divided by the least loss over the group sizes.
Colours and marks show checkpoints of training with N = BG = {BUDGET:,} responses per step. The figure repeats Figure 5 of arXiv
2603.01162 on fixed problems where all is known. Points are simulated, with 95% intervals; they are filled where the group size is
in the 95% confidence set of the best. Lines are the law to first order in the noise, or join the points where that law is not
computed. A checkpoint is left out where noise improves the policy, because it has no least loss to divide by.
"""

from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from grpo_theory.page.style import GREY, NORMAL_95
from paper_figures.content.panels import Tables, checkpoint_colours, group_size_axis, log_axis, title_of
from paper_figures.group_law import fine, group_law
from simulations.training.group_size import BUDGET  # noqa: F401, for the caption

PLACE = 110
TABLES = ("group_size", "group_size_lm")
MARKERS = "os^vDPX*"
CONSTANT, HARMONIC = ("linear", "mixed", "kl-linear", "kl-tabular"), ("linear", "mixed", "kl-linear")
PANELS = [*((name, "Constant") for name in CONSTANT), *((name, "Harmonic") for name in HARMONIC), ("lm-few-shot", "Constant")]


def draw(tables: Tables) -> Figure:
    """Draw one panel for each problem and schedule, and in it one curve for each checkpoint."""
    table = pd.concat([tables[name].query("budget == @BUDGET and statement == ''") for name in TABLES])
    steps = sorted(int(step) for step in table["checkpoint"].unique())
    looks = dict(zip(steps, zip(checkpoint_colours(len(steps)), cycle(MARKERS), strict=False), strict=True))
    figure, panels = plt.subplots(2, 4, figsize=(9.6, 5.8), sharex=True, sharey="row")
    for axes, (problem, kind) in zip(panels.flat, PANELS, strict=True):
        part = table[(table["problem"] == problem) & table["schedule"].str.startswith(kind)]
        for step, rows in part.groupby("checkpoint"):
            _curve(axes, rows.sort_values("group_size"), *looks[int(step)])
        group_size_axis(axes, [int(size) for size in sorted(part["group_size"].unique())])
        log_axis(axes)
        axes.set_ylim(0.4, 70.0)
        axes.set_title(title_of(problem), fontsize="small")
        axes.text(0.04, 0.95, f"{kind.lower()} step", transform=axes.transAxes, fontsize="small", va="top")
    for axes in panels[0]:
        axes.set_xlabel("")
    for axes in panels[:, 0]:
        axes.set_ylabel("loss / least loss")
    handles = [Line2D([], [], color=c, marker=mark, markersize=4.0, label=f"$n$ = {n}") for n, (c, mark) in looks.items()]
    faces = {"may be the best": GREY, "not the best": "white"}
    handles += [Line2D([], [], color=GREY, marker="o", ls="", mfc=face, label=label) for label, face in faces.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=(len(handles) + 1) // 2, fontsize="small")
    return figure


def _curve(axes: Axes, rows: pd.DataFrame, colour: str, marker: str) -> None:
    """Draw one checkpoint's curve, unless noise helps there."""
    sizes, law = rows["group_size"].to_numpy(), rows["prediction"].to_numpy()
    known = bool(np.isfinite(law).all())
    reference = law if known else rows["estimate"].to_numpy()
    if (reference <= 0.0).any():
        return
    least = reference.min()
    every = fine(sizes) if known else sizes
    curve = every * group_law(sizes, law / sizes)(every) if known else reference
    axes.plot(every, curve / least, color=colour, linewidth=1.2)
    kept = rows["in_set"].to_numpy(dtype=bool)
    for mask, fill in ((kept, colour), (~kept, "white")):
        half = NORMAL_95 * rows["standard_error"][mask] / least
        style: dict[str, Any] = {"fmt": marker, "color": colour, "markerfacecolor": fill, "markersize": 4.0}
        axes.errorbar(sizes[mask], rows["estimate"][mask] / least, yerr=half, elinewidth=0.9, zorder=3, **style)
