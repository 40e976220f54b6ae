"""Success against the responses spent in a whole run, one curve for each group size."""

from collections.abc import Mapping

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK
from paper_figures.content.arms import KEYS, Arm, arm_title

PLACE = 111
TABLES = ("frontier",)
PANELS = (
    Arm("few prompts"),
    Arm("few prompts", "rloo"),
    Arm("tabular"),
    Arm("shared"),
    Arm("easy"),
    Arm("hard"),
    Arm("wrong rewards"),
    Arm("16 tokens"),
    Arm("learned features"),
)
MARKERS = "osD^vPX*"
LEAST = 0.7
"""Panels begin at this share of the best success at the smallest budget: curves that are lower are cut there."""
CAPTION = (
    "The exact mean success of the policy is shown against the responses spent in a whole run. Runs have plain ascent, "
    "constant steps and the same number of responses per update. Each curve is a group size. At every point, each group "
    "size has its own best learning rate, which was chosen on runs other than those shown. Large rings mark the best "
    f"group size. Bars are 95% intervals of the mean over runs. Panels are cut below {LEAST:.0%} of the best success at "
    "the smallest budget."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each world and estimator."""
    arms = dict(iter(tables["frontier"].groupby(KEYS)))
    drawn = {arm: arms[arm] for arm in PANELS if arm in arms}
    rows = -(-len(drawn) // 3)
    figure, panels = plt.subplots(rows, -(-len(drawn) // rows), figsize=(9.6, 2.9 * rows), squeeze=False)
    sizes = np.sort(pd.concat(drawn.values())["group_size"].dropna().unique())
    colours = dict(zip(sizes, mpl.colormaps["viridis"](np.linspace(0.0, 0.88, len(sizes))), strict=True))
    markers = dict(zip(sizes, MARKERS, strict=False))
    for axes, (arm, part) in zip(panels.flat, drawn.items(), strict=False):
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
        axes.set_title(arm_title(arm), fontsize="small")
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
