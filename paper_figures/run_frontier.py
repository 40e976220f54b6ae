"""Success against the responses spent in a whole run, one curve for each group size."""

from collections.abc import Mapping

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK

PLACE = 111
TABLES = ("frontier",)
PANELS = {
    ("few prompts", "grpo"): "few prompts, GRPO",
    ("few prompts", "rloo"): "few prompts, leave-one-out",
    ("tabular", "grpo"): "tabular, GRPO",
    ("shared", "grpo"): "many prompts, GRPO",
    ("easy", "grpo"): "easy prompts, GRPO",
    ("hard", "grpo"): "hard prompts, GRPO",
}
MARKERS = "osD^vPX*"
LEAST = 0.7
"""Panels begin at this share of the best success at the smallest budget: curves that are lower are cut there."""
CAPTION = (
    "Mean success of the policy, exact, against the responses spent in a whole run, with plain ascent, constant steps and the "
    "same number of responses per update. Each curve is a group size. At every point each group size has its own best learning "
    "rate, chosen on other runs than those shown. Large rings mark the best group size. Bars are 95% intervals of the mean over "
    f"runs. Panels are cut below {LEAST:.0%} of the best success at the smallest budget."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each world and estimator."""
    table = main_arms(tables["frontier"])
    drawn = {key: title for key, title in PANELS.items() if len(at_panel(table, key))}
    rows = 2 if len(drawn) > 3 else 1
    figure, panels = plt.subplots(rows, -(-len(drawn) // rows), figsize=(9.6, 2.9 * rows), squeeze=False)
    sizes = np.sort(table["group_size"].dropna().unique())
    colours = dict(zip(sizes, mpl.colormaps["viridis"](np.linspace(0.0, 0.88, len(sizes))), strict=True))
    markers = dict(zip(sizes, MARKERS, strict=False))
    for axes, (key, title) in zip(panels.flat, drawn.items(), strict=False):
        part = at_panel(table, key)
        part = part[part["quantity"] == "success"]
        for size, curve in part.groupby("group_size"):
            label, curve = f"{size:.0f}", curve.sort_values("budget")
            axes.errorbar(
                curve["budget"],
                curve["estimate"],
                1.96 * curve["standard_error"],
                color=colours[size],
                marker=markers[size],
                markersize=3.5,
                linewidth=1.0,
                elinewidth=0.8,
                label=label,
            )
        best = part.loc[part.groupby("budget")["estimate"].idxmax()]
        axes.plot(
            best["budget"], best["estimate"], "o", color="none", markeredgecolor=BLACK, markersize=9.0, label="best group size"
        )
        axes.set_xscale("log", base=2)
        course = part.groupby("budget")["estimate"].max()
        low, high = max(part["estimate"].min(), LEAST * course.min()), (part["estimate"] + 1.96 * part["standard_error"]).max()
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes.set_title(title, fontsize="small")
    for axes in panels[-1]:
        axes.set_xlabel("responses spent, $C$")
    for axes in panels[:, 0]:
        axes.set_ylabel("mean success")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: (not labels[i].isdigit(), int(labels[i]) if labels[i].isdigit() else 0))
    figure.legend(
        [handles[i] for i in order],
        [f"$G={labels[i]}$" if labels[i].isdigit() else labels[i] for i in order],
        loc="outside lower center",
        ncols=len(labels),
        fontsize="small",
    )
    return figure


def main_arms(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of plain ascent with constant steps and 256 responses an update."""
    return table[(table["optimiser"] == "SGD") & ~table["decaying"] & (table["responses"] == 256)]


def at_panel(table: pd.DataFrame, key: tuple[str, str]) -> pd.DataFrame:
    """Return the rows of a world and an estimator."""
    return table[(table["world"] == key[0]) & (table["estimator"] == key[1])]
