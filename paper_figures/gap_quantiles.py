"""Quantiles of the scaled suboptimality gap against its limit law.

Each panel shows quantiles of n Delta(theta_n) over many training runs against quantiles of the predicted limit, a weighted sum of
chi-squares. On the diagonal they agree. For each estimator {COUNT} quantiles are drawn, spread out over logarithmic axes. Steps
are {FACTOR:g}/(lambda_min (i + offset)), and n includes the offset. An estimator is drawn where its mean update vanishes at the
maximiser.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import ESTIMATORS, GREY, TRAINING
from paper_figures.content.panels import Tables

PLACE = 80
TABLES = ("limit_law",)
FACTOR = 2.0
"""Of the steps, in the reciprocal of the least curvature."""
COUNT, ESTIMATORS_AT_MOST = 10, 3
"""How many quantiles of an estimator are drawn, and how many estimators a panel has."""


def _spread(predictions: np.ndarray, shift: int) -> np.ndarray:
    """Return which quantiles are drawn: evenly spaced on a log axis, and between those of estimators with another shift."""
    first, last = np.log(predictions[[0, -1]])
    places = np.linspace(first, last, COUNT) - shift * (last - first) / (ESTIMATORS_AT_MOST * COUNT)
    return np.unique(np.abs(np.log(predictions) - places[:, None]).argmin(axis=1))


def draw(tables: Tables) -> Figure:
    """Draw one panel for each problem."""
    table = tables["limit_law"].query("quantity == 'quantile' and batch_size == 1 and group_size == 4 and factor == @FACTOR")
    problems = [problem for problem in TRAINING if (table["problem"] == problem).any()]
    figure, panels = plt.subplots(1, len(problems), figsize=(max(2.08 * len(problems), 4.2), 2.9), squeeze=False)
    handles = {}
    for axes, problem in zip(panels[0], problems, strict=True):
        for shift, (name, part) in enumerate(table[table["problem"] == problem].groupby("estimator", sort=False)):
            part = part.iloc[_spread(part["prediction"].to_numpy(), shift)]
            look = ESTIMATORS[str(name)]
            style = {"markerfacecolor": "none", "markersize": 4.0, "markeredgewidth": 1.0, "label": look.label}
            drawn = axes.plot(part["prediction"], part["estimate"], look.marker, color=look.colour, **style)
            handles[look.label] = drawn[0]
        axes.set(xscale="log", yscale="log")
        axes.axline((1.0, 1.0), (2.0, 2.0), color=GREY, linewidth=0.9, zorder=1)
        axes.set_title(TRAINING[problem], fontsize="small")
        axes.set_xlabel("predicted quantile", fontsize="small")
        axes.set_aspect("equal", adjustable="datalim")
    panels[0, 0].set_ylabel(r"simulated $n\,\Delta(\theta_n)$")
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=4, fontsize="small")
    return figure
