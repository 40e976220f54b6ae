"""The best group size at three budgets: one law, divided by N.

The vertical axis is N times the loss of the learned policy after {steps} steps, with N = {budgets} responses per step. Points are
simulated, with 95% intervals. The line is the law to first order in the noise, by which N times the loss does not depend on N.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLUE, GREEN, GREY, VERMILION, Look
from paper_figures.content.panels import Tables, group_size_axis, log_axis, points, title_of
from paper_figures.group_law import fine, group_law

PLACE = 120
TABLES = ("group_size",)
SHOWN = ("linear", "kl-linear")
LOOKS = {
    1024: Look("$N$ = 1024", BLUE, "o", "-"),
    2048: Look("$N$ = 2048", GREEN, "s", "-"),
    4096: Look("$N$ = 4096", VERMILION, "D", "-"),
}
LAW = "law to first order"


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    last = _last(tables)
    return {"steps": int(last["checkpoint"].iloc[0]), "budgets": listed(sorted(last["budget"].unique()))}


def draw(tables: Tables) -> Figure:
    """Draw one panel for each problem."""
    last = _last(tables)
    figure, panels = plt.subplots(1, len(SHOWN), figsize=(7.0, 3.4))
    for axes, problem in zip(panels, SHOWN, strict=True):
        part = last[last["problem"] == problem]
        budgets = sorted(part["budget"].unique())
        for budget, rows in part.groupby("budget"):
            rows = rows.sort_values("group_size")
            look = LOOKS[int(budget)]
            shift = 1.0 + 0.05 * (budgets.index(budget) - (len(budgets) - 1) / 2.0)
            points(axes, shift * rows["group_size"], budget * rows["estimate"], budget * rows["standard_error"], look)
            axes.plot([], [], look.marker, color=look.colour, markerfacecolor="white", label=look.label)
        one = part[part["budget"] == part["budget"].min()].sort_values("group_size")
        sizes = fine(one["group_size"])
        law = group_law(one["group_size"], one["budget"] * one["prediction"] / one["group_size"])
        axes.plot(sizes, sizes * law(sizes), color=GREY, linewidth=1.2, label=LAW)
        group_size_axis(axes, [int(size) for size in one["group_size"]])
        log_axis(axes)
        axes.set_title(title_of(problem), fontsize="small")
    panels[0].set_ylabel(r"$N \times$ loss")
    named = {label: one for axes in panels for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = [look.label for look in LOOKS.values() if look.label in named] + [LAW]
    figure.legend([named[label] for label in order], order, loc="outside lower center", ncols=4, fontsize="small")
    return figure


def _last(tables: Tables) -> pd.DataFrame:
    """Return the rows that are drawn: of the problems shown, at the last checkpoint of training with constant steps."""
    table = tables["group_size"]
    shown = table["problem"].isin(SHOWN) & table["schedule"].str.startswith("Constant") & (table["statement"] == "")
    return table[shown & (table["checkpoint"] == table["checkpoint"].max())]
