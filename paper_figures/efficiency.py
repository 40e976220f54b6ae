"""Which group size, for estimators whose means differ: efficiency at a fixed number of responses.

The exact efficiency of one step, (g . E ghat)^2 / (|g|^2 E|ghat|^2), is shown against the number of responses per prompt. The
total number of responses is fixed. Where curvature is the same in all directions, efficiency compares one step with a step along
the exact gradient. It is the share of the exact gradient's gain that one step of the estimate's own best length achieves.
Multiplying an estimator by a factor leaves its efficiency unchanged, so estimators with different means can be compared. Large
marks are at the best group size of each estimator.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import ESTIMATORS, PROBLEMS, SKY, Look
from paper_figures.content.panels import Tables, group_size_axis

PLACE = 7
TABLES = ("efficiency",)
LOOKS = {name: ESTIMATORS[name] for name in ("reinforce", "rloo", "grpo")} | {"max_rl": Look("MaxRL", SKY, "o", "-")}
TITLES = {name: look.label for name, look in PROBLEMS.items()} | {"lm-answers": "SmolLM2, several digits"}
TICKS = (2, 4, 8, 16, 32, 64)


def shown(table: pd.DataFrame) -> list[str]:
    """Return the language model's problems of a table, in its order."""
    return [str(name) for name in table["problem"].unique() if str(name).startswith("lm-")]


def draw(tables: Tables) -> Figure:
    """Draw a panel for each head of the language model."""
    table = tables["efficiency"].query("quantity == 'efficiency'")
    problems = shown(table)
    figure, panels = plt.subplots(1, len(problems), figsize=(1.2 + 2.4 * len(problems), 3.3), squeeze=False)
    for axes, problem in zip(panels[0], problems, strict=True):
        curves(axes, table[table["problem"] == problem])
        axes.set_title(TITLES[problem], fontsize="small")
    panels[0, 0].set_ylabel("efficiency of one step")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=min(4, len(problems)))
    return figure


def curves(axes: Axes, table: pd.DataFrame) -> None:
    """Draw one problem's curves, a large mark at the top of each."""
    for name, look in LOOKS.items():
        own = table[table["estimator"] == name].set_index("group_size")["estimate"].sort_index()
        axes.plot(own.index, own, look.line, color=look.colour, label=look.label)
        axes.plot(own.idxmax(), own.max(), look.marker, color=look.colour, markersize=7.0)
    group_size_axis(axes, TICKS)
    axes.set_ylim(bottom=0.0)
