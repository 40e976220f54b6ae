"""Leave-one-out against the best of all prompt-only baselines as groups grow, where Assumption 2 holds and where it does not.

Each mark is the exact limit, as groups grow, of an estimator's error divided by that of the best prompt-only baseline. Corollary
5 of arXiv 2603.01162 says that this limit is 1 for leave-one-out, and more for no baseline, where Assumption 2 holds. The
assumption holds on the problems below the dotted line. Brackets give the mean over prompts of |corr(||W||^2, Z)|.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.page.style import ESTIMATORS, GREY, PROBLEMS
from paper_figures.content.panels import WORDS, Tables, ticks

PLACE = 55
TABLES = ("prompt_baselines",)
OTHERS = WORDS["prompt_baselines"]
SHOWN = ("reinforce", "rloo")


def draw(tables: Tables) -> Figure:
    """Draw a dot plot, a line for each problem, sorted by how far Assumption 2 is from holding."""
    table = tables["prompt_baselines"]
    correlations = table.groupby("problem")["correlation_mean"].first().sort_values(ascending=False, kind="stable")
    labels = {name: look.label for name, look in PROBLEMS.items()} | OTHERS
    heights = np.arange(len(correlations))
    figure, axes = plt.subplots(figsize=(5.3, 4.6))
    for name in SHOWN:
        look, part = ESTIMATORS[name], table[table["estimator"] == name].set_index("problem").loc[correlations.index]
        axes.plot(
            part["estimate"] / part["prediction"], heights, look.marker, color=look.colour, linestyle="none", label=look.label
        )
    axes.axvline(1.0, color=GREY, linewidth=0.8, zorder=1)
    border = float((correlations >= IDENTITY_TOLERANCE).sum()) - 0.5
    axes.axhline(border, color=GREY, linewidth=1.0, linestyle=":", label="below: Assumption 2 holds")
    axes.set_xscale("log")
    ticks(axes.xaxis, [1.0, 1.2, 1.5, 2.0, 2.5], FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(heights, [f"{labels[str(name)]} [{found:.2f}]" for name, found in correlations.items()])
    axes.set_ylabel(r"problem [mean $|\mathrm{corr}(\|W\|^2, Z)|$]")
    axes.invert_yaxis()
    axes.set_xlabel("error / error of the best\nprompt-only baseline, limit")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return figure
