"""A nested-loop plot: coverage over all settings in one line, the settings as steps below.

A nested-loop plot (Ruecker and Schwarzer 2014) shows the coverage of nominal {LEVEL:.0%} intervals over the whole design. Each
target has a panel. Group sizes are nested within batch sizes, and batch sizes within problems, as the steps at the foot show. Of
several components, the one that is worst covered is shown. A dataset that gives no answer is not covered.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import GREY
from paper_figures.content.panels import Tables, coverage_axis, intervals, symbol, title_of

PLACE = 180
TABLES = ("coverage",)
LEVEL = 0.95
SHOWN = ("value", "gradient", "c1", "error", "group size")
SIZES = {"batch_size": "$B$", "group_size": "$G$"}


def draw(tables: Tables) -> Figure:
    """Draw one panel for each target, and the settings beneath them."""
    table = tables["coverage"].query("part == 'design' and measure == 'coverage' and level == @LEVEL and target in @SHOWN")
    targets, problems = table["target"].unique(), list(table["problem"].unique())
    settings = table[["problem", *SIZES]].drop_duplicates()
    order = [problems.index(name) for name in settings["problem"]]
    settings = settings.iloc[np.lexsort((settings["group_size"], settings["batch_size"], order))]
    size, heights = (9.5, 1.3 + 1.75 * len(targets)), [1.75] * len(targets) + [0.9]
    figure, panels = plt.subplots(len(targets) + 1, 1, figsize=size, sharex=True, height_ratios=heights)
    ends = np.flatnonzero(settings["problem"].to_numpy()[1:] != settings["problem"].to_numpy()[:-1]) + 1
    for axes in panels:
        axes.grid(visible=False, axis="x")
        for end in ends:
            axes.axvline(end, color="#CFCFCF", linewidth=0.8, zorder=0)
    for axes, target in zip(panels, targets, strict=False):
        part = table[table["target"] == target]
        _lines(axes, part.groupby(["interval", "problem", *SIZES], sort=False)["estimate"].min().unstack("interval"), settings)
        axes.set_ylabel(f"{symbol(target)}\ncoverage", fontsize="small")
    bounds = np.concatenate([[0], ends, [len(settings)]])
    top = panels[0].secondary_xaxis("top")
    top.set_xticks(
        (bounds[1:] + bounds[:-1]) / 2.0, [title_of(name).replace(", ", ",\n") for name in problems], fontsize="x-small"
    )
    top.tick_params(length=0)
    top.spines["top"].set_visible(False)
    _factors(panels[-1], settings)
    panels[-1].set_xlim(0.0, len(settings))
    return figure


def _lines(axes: Axes, worst: pd.DataFrame, settings: pd.DataFrame) -> None:
    """Draw one staircase for each interval function, with a gap where a setting was not tried."""
    axes.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
    values = worst.reindex(pd.MultiIndex.from_frame(settings))
    for name, look in intervals(pd.DataFrame({"interval": worst.columns})).items():
        _steps(axes, values[name].to_numpy(), look.line, look.colour, look.label)
    coverage_axis(axes.yaxis)
    axes.tick_params(axis="x", length=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.005, 0.5), fontsize="x-small")


def _steps(axes: Axes, values: np.ndarray, line: str, colour: str, label: str | None = None) -> None:
    edges = np.arange(len(values) + 1)
    axes.step(edges, np.append(values, values[-1:]), line, where="post", color=colour, linewidth=1.3, label=label)


def _factors(axes: Axes, settings: pd.DataFrame) -> None:
    """Draw each size as a staircase in a band of its own."""
    for band, (factor, label) in enumerate(reversed(SIZES.items())):
        levels = np.sort(settings[factor].unique())
        codes = pd.Categorical(settings[factor], levels).codes.astype(float)
        _steps(axes, 1.6 * band + codes / max(len(levels) - 1, 1), "-", GREY)
        text = f"{label} = {', '.join(map(str, levels))}"
        axes.text(1.005, 1.6 * band + 0.5, text, transform=axes.get_yaxis_transform(), va="center", fontsize="x-small")
    axes.set_axis_off()
