"""The best group size at a budget, measured, and predicted from the start of the run.

The group size is shown against the responses that a whole run spends. Black marks show the size with the highest success. Bars
cover all sizes that may be the best, given the spread over draws. Orange lines show the size that the law predicts, from success
rates and noise at the start alone, as a geometric mean over draws. The law counts a prompt as met once {MET} successes are
expected of its share of the responses.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, GREY, ORANGE
from paper_figures.content.arms import KEYS, Arm, arm_title
from paper_figures.content.panels import Tables
from simulations.runs.best_size_law import MET  # noqa: F401, for the caption

PLACE = 11
TABLES = ("frontier", "best_size_law")
ABOUT = "growth/law"
FEW = "few prompts"
ARMS = (
    Arm(FEW, "rloo"),
    Arm(FEW),
    Arm(FEW, optimiser="Adam"),
    Arm(FEW, decaying=True),
    Arm(FEW, responses=1024),
    Arm("shared"),
    Arm("easy"),
    Arm("hard"),
)
COLUMNS = 4
BUDGETS = {2**10: "1k", 2**12: "4k", 2**14: "16k", 2**16: "65k", 2**18: "262k"}
LEAST = 3
"""The group sizes that an arm must have been tried with, to be drawn."""


def draw(tables: Tables) -> Figure:
    """Draw a panel for each arm of the table."""
    table = tables["frontier"].query("quantity == 'success'")
    told = tables["best_size_law"].query("quantity == 'size that the law says'").set_index(["world", "estimator"]).sort_index()
    arms = {key: own for key, own in table.groupby(KEYS, sort=False) if key in ARMS and own["group_size"].nunique() >= LEAST}
    columns = max(1, min(COLUMNS, len(arms)))
    lines = max(1, -(-len(arms) // columns))
    size = (max(5.6, 0.4 + 2.4 * columns), 0.8 + 2.3 * lines)
    figure, panels = plt.subplots(lines, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, (key, own) in zip(panels.flat, arms.items(), strict=False):
        said = told.loc[key[:2]].set_index("budget")["estimate"]
        _panel(axes, own.astype({"group_size": int, "budget": int}), said)
        axes.set_title(arm_title(Arm(*key)), fontsize="small")
    for axes in list(panels.flat)[len(arms) :]:
        axes.remove()
    for axes in panels[:, 0]:
        axes.set_ylabel("best group size")
    for axes in panels[-1]:
        axes.set_xlabel("responses spent")
    if arms:
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Axes, own: pd.DataFrame, said: pd.Series) -> None:
    """Draw one arm: which sizes may be best, which is, and the law's."""
    may = own[own["in_set"].astype(bool)].groupby("budget")["group_size"].agg(["min", "max"])
    best = own.loc[own.groupby("budget")["estimate"].idxmax()].set_index("budget")["group_size"]
    said = said[said.index.isin(best.index)]
    axes.vlines(may.index, may["min"] / 1.1, may["max"] * 1.1, color=GREY, linewidth=5.0, alpha=0.45, label="may be best")
    axes.plot(best.index, best, "o", color=BLACK, label="best of the runs")
    axes.plot(said.index, said, "-", color=ORANGE, linewidth=2.0, label="the law")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    least, most = best.index.min() / 2, 2 * best.index.max()
    ticks = {budget: label for budget, label in BUDGETS.items() if least <= budget <= most}
    axes.set_xticks(list(ticks), ticks.values())
    axes.set_yticks([2, 8, 32, 128], ["2", "8", "32", "128"])
    axes.minorticks_off()
