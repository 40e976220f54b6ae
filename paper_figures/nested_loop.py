"""A nested-loop plot: coverage over all settings in one line, the settings as steps below."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures.style import GREY, intervals

TABLES = ("coverage",)
LEVEL = 0.95
FACTORS = {"problem": "problem", "batch_size": "$B$", "group_size": "$G$"}
CAPTION = (
    "Coverage of nominal 95% intervals over all settings (nested-loop plot, Ruecker and Schwarzer 2014), a panel a target: group "
    "sizes within batch sizes within problems, as the steps below each panel say. Of several components the one that is worst "
    "covered is shown."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel a target, its settings beneath it."""
    table = tables["coverage"].query("measure == 'coverage' and level == @LEVEL")
    looks = intervals(table)
    targets = table["target"].unique()
    figure, panels = plt.subplots(
        2 * len(targets),
        1,
        figsize=(8.5, 0.6 + 2.9 * len(targets)),
        squeeze=False,
        gridspec_kw={"height_ratios": [2.2, 1.0] * len(targets)},
    )
    handles = {}
    for i, target in enumerate(targets):
        above, below = panels[2 * i, 0], panels[2 * i + 1, 0]
        worst = table[table["target"] == target].groupby(["interval", *FACTORS], sort=False)["estimate"].min().unstack("interval")
        settings = worst.index.to_frame(index=False)
        problems = pd.Categorical(settings["problem"], settings["problem"].unique()).codes
        order = np.lexsort((settings["group_size"], settings["batch_size"], problems))
        above.axhline(LEVEL, color=GREY, linewidth=0.9, zorder=1)
        for name in worst.columns:
            look = looks[str(name)]
            handles[look.label] = _steps(above, worst[name].to_numpy()[order], look.line, look.colour)
        _factors(below, settings.iloc[order])
        above.set_ylabel("coverage")
        above.set_title(str(target), fontsize="small")
        above.set_xticks([])
        for axes in (above, below):
            axes.set_xlim(0.0, len(order))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def _steps(axes: Axes, values: np.ndarray, line: str, colour: str) -> Line2D:
    edges = np.arange(len(values) + 1)
    return axes.step(edges, np.append(values, values[-1:]), line, where="post", color=colour, linewidth=1.2)[0]


def _factors(axes: Axes, settings: pd.DataFrame) -> None:
    """Draw each factor as a staircase in a band of its own, its values on the steps of the outer ones."""
    for band, (factor, label) in enumerate(reversed(FACTORS.items())):
        levels = settings[factor].unique() if factor == "problem" else np.sort(settings[factor].unique())
        codes = pd.Categorical(settings[factor], levels).codes.astype(float)
        heights = 1.4 * band + codes / max(len(levels) - 1, 1)
        _steps(axes, heights, "-", GREY)
        text = f"{label}: {', '.join(map(str, levels))}"
        axes.text(1.005, 1.4 * band + 0.5, text, transform=axes.get_yaxis_transform(), va="center", fontsize="x-small")
    axes.set_axis_off()
