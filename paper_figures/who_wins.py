"""Which baseline has the lower variance, problem by problem.

Each mark is the simulated error of one group's gradient about its prompt's gradient, with a 95% interval. It is relative to the
error of the oracle with the value baseline. Left of 1 the error is below the oracle's. Brackets give the mean over prompts of
|corr(||W||^2, Z)|, which Assumption 2 of arXiv 2603.01162 sets to 0.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import ESTIMATORS, NORMAL_95, PROBLEMS
from paper_figures.content.panels import Tables, line_between_rows, marks

PLACE = 50
TABLES = ("baselines",)


SHOWN = ("reinforce", "oracle", "rloo", "optimal", "optimal_loo")


def draw(tables: Tables) -> Figure:
    """Draw a dot plot with a panel for a small and one for a large group."""
    table = tables["baselines"]
    sizes = sorted(table["group_size"].unique())
    figure, panels = plt.subplots(1, len(sizes), figsize=(9.0, 4.4), sharey=True)
    names = list(PROBLEMS)
    correlations = table.groupby("problem")["correlation_mean"].first()
    for axes, size in zip(panels, sizes, strict=True):
        part = table[table["group_size"] == size].set_index(["problem", "estimator"]).sort_index()
        for offset, name in zip(np.linspace(-0.28, 0.28, len(SHOWN)), SHOWN, strict=True):
            look = ESTIMATORS[name]
            rows = part.loc[[(problem, name) for problem in names]]
            oracle = part.loc[[(problem, "oracle") for problem in names], "estimate"].to_numpy()
            half = NORMAL_95 * rows["standard_error"] / oracle
            style = {"markerfacecolor": look.colour, "label": look.label, "elinewidth": 1.0}
            marks(axes, rows["estimate"] / oracle, np.arange(len(names)) + offset, look, xerr=half, **style)
        axes.axvline(1.0, color="#7F7F7F", linewidth=0.8)
        axes.set_xscale("log")
        ticks = [0.3, 0.5, 0.7, 1.0, 1.5, 2.0]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)

        axes.set(title=f"$G$ = {size}", xlabel="MSE / MSE(value baseline)")
    panels[0].set_yticks(np.arange(len(names)), [f"{PROBLEMS[name].label} [{correlations[name]:.2f}]" for name in names])
    panels[0].set_ylabel(r"problem [mean $|\mathrm{corr}(\|W\|^2, Z)|$]")
    panels[0].invert_yaxis()
    for axes in panels:
        line_between_rows(axes, len(names))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
