"""Every registered estimator side by side, a user's own included."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BROWN, ESTIMATORS, PROBLEMS, SKY, Look, group_size_axis, points

PLACE = 60
TABLES = ("estimators",)


def looks(names: list[str]) -> dict[str, Look]:
    """Return the look of each estimator; those without one of their own get colours and markers from a cycle."""
    palette = [SKY, BROWN, *sns.color_palette("husl", 6).as_hex()]
    spare = {
        name: Look(name, palette[i % 8], "PX*hd8"[i % 6], "-.")
        for i, name in enumerate(name for name in names if name not in ESTIMATORS)
    }
    return {name: ESTIMATORS.get(name) or spare[name] for name in names}


def caption(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say how to read the figure, with the settings of these tables."""
    batches = sorted(tables["estimators"]["batch_size"].unique())
    return (
        f"Efficiency of every registered estimator is shown for a batch of B = {listed(batches)} prompts: the share of the "
        "exact gradient's gain that one step of the estimate's own best length has. Bars are exact, where enumeration is "
        "within reach. Points are simulated, with 95% intervals; thin lines lead the eye from one to the next. A factor on "
        "an estimator, which a learning rate undoes, leaves its efficiency as it is."
    )


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw one panel for each problem."""
    table = tables["estimators"].query("quantity == 'efficiency'")
    problems = list(table["problem"].unique())
    figure, panels = plt.subplots(1, len(problems), figsize=(9.0, 3.9), squeeze=False)
    for axes, problem in zip(panels[0], problems, strict=True):
        for name, look in looks(list(table["estimator"].unique())).items():
            part = table[(table["problem"] == problem) & (table["estimator"] == name)].sort_values("group_size")
            sizes = part["group_size"]
            axes.plot(sizes, part["prediction"], "_", color=look.colour, markersize=16.0, markeredgewidth=1.6)
            axes.plot(sizes, part["estimate"], look.line, color=look.colour, linewidth=0.6, alpha=0.6)
            points(axes, sizes, part["estimate"], part["standard_error"], look)
            axes.plot([], [], look.line, marker=look.marker, color=look.colour, markerfacecolor="white", label=look.label)
        axes.set_ylim(bottom=0.0)
        group_size_axis(axes, sorted(table["group_size"].unique()))
        axes.set_title(PROBLEMS[problem].label)
    panels[0, 0].set_ylabel("efficiency of one step")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
