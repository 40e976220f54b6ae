"""The mean suboptimality gap during training, its bounds, and its exact recursion.

Each panel shows the mean suboptimality gap against the number of steps. Training starts at the edge of the region. Steps are
constant in the upper row, and beta/(i + i_0) in the lower one. Marks are simulated; the intervals of a panel hold together with
probability 99.9%. Thick grey lines are the bounds of Lemma 6 for the leave-one-out estimator, with every constant over the
region. Thin grey lines iterate the one-step inequality behind these bounds. Coloured lines are the exact linear recursion of the
covariance at the maximiser.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from scipy.special import ndtri

from grpo_theory.page.style import ESTIMATORS, GREY, TRAINING
from paper_figures.content.panels import Tables, marks

PLACE = 70
TABLES = ("training_gap",)
ROWS = {"constant": "constant step", "harmonic": r"$\beta/(i+i_0)$"}


def draw(tables: Tables) -> Figure:
    """Draw one panel for each problem and schedule."""
    table = tables["training_gap"].query("quantity == 'gap'")
    laws = tables["training_gap"].query("quantity == 'law'")
    problems = list(table["problem"].unique())
    figure, panels = plt.subplots(len(ROWS), len(problems), figsize=(9.0, 5.4), sharex=True, squeeze=False)
    for line, (schedule, label) in zip(panels, ROWS.items(), strict=True):
        for axes, problem in zip(line, problems, strict=True):
            part = table[(table["problem"] == problem) & (table["schedule"] == schedule)]
            wide = -float(ndtri(0.0005 / max(len(part), 1)))
            exact = laws[(laws["problem"] == problem) & (laws["schedule"] == schedule)].set_index("estimator")
            for name, curve in part.groupby("estimator", sort=False):
                look = ESTIMATORS[str(name)]
                half = wide * curve["standard_error"]
                low = np.maximum(curve["estimate"] - half, 1e-3 * curve["estimate"])
                marks(
                    axes,
                    curve["n"],
                    curve["estimate"],
                    look,
                    yerr=[curve["estimate"] - low, half],
                    markersize=3.5,
                    elinewidth=0.8,
                    capsize=2.5,
                )
                axes.plot(exact.loc[name, "n"], exact.loc[name, "estimate"], "-", color=look.colour, linewidth=1.0)
            own = exact.loc["rloo"]
            axes.plot(own["n"], own["bound"], color=GREY, linewidth=2.2)
            axes.plot(own["n"], own["iterated"], color=GREY, linewidth=1.0)
            axes.set_xscale("log", base=2)
            axes.set_xticks([1, 16, 256, 4096], ["1", "16", "256", "4,096"])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if schedule == "constant" else (1.0,)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        line[0].set_ylabel(f"mean gap, {label}")
    for top, bottom, problem in zip(*panels, problems, strict=True):
        top.set_title(TRAINING[problem], fontsize="small")
        bottom.set_xlabel("steps $n$")
    names = [ESTIMATORS[str(name)] for name in table["estimator"].unique()]
    handles = [Line2D([], [], color=look.colour, marker=look.marker, markerfacecolor="white", label=look.label) for look in names]
    handles.append(Line2D([], [], color=GREY, linewidth=2.2, label="Lemma 6"))
    handles.append(Line2D([], [], color=GREY, linewidth=1.0, label="one-step inequality, iterated"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="small")
    return figure
