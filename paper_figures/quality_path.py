"""Figure 4 of the first paper on policies of rising quality, and what the error law becomes as they improve.

SmolLM2's head is trained further by exact gradients. Everything shown is exact. The upper row shows the error of one group about
its prompt's gradient for few-shot prompts, in a panel for each mean success. In the lower row, mean success is the horizontal
axis. Solid lines are few-shot prompts, and dotted lines are zero-shot ones. The first panel of this row shows the error relative
to that of the value baseline at G = {SIZE}. The second panel shows the constants of MSE = c1/B + c2/(BG) + c3/(BG(G-1)). The
third panel shows the group size of least error at a fixed budget, exact and as printed. The last panel shows the measures of
Assumption 2. They are the mean over prompts of |corr(||W||^2, Z)|, and the share of prompts whose error is lower with no baseline
than with V.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BROWN, CONSTANTS, ESTIMATORS, GREY, PURPLE
from paper_figures.content.panels import Tables, curve, exact_line, group_size_axis, log_axis
from paper_figures.group_law import fine, group_law

PLACE = 35
TABLES = ("quality_path",)
SIZE = 8
"""At which errors are compared along the path."""
SHOWN = ("reinforce", "rloo", "oracle")
JUDGED = (0.15, 0.35, 0.6, 0.85)
LINES = {"lm-few-shot": ("few-shot", "-"), "lm-zero-shot": ("zero-shot", ":")}
MEASURES = {
    "correlation_mean": (r"mean $|\mathrm{corr}(\|W\|^2, Z)|$", PURPLE),
    "vanilla_wins": ("prompts where 0 beats $V$", BROWN),
}


def _errors(panels: list[Axes], table: pd.DataFrame) -> None:
    """Draw errors against the group size, a panel for each quality."""
    few = table[table["problem"] == "lm-few-shot"]
    for axes, quality in zip(panels, JUDGED, strict=True):
        part = few[few["quality"] == quality]
        for name in SHOWN:
            look, own = ESTIMATORS[name], part[part["estimator"] == name]
            sizes = fine(own["group_size"])
            exact_line(axes, sizes, group_law(own["group_size"], own["estimate"])(sizes), look)
            axes.plot(own["group_size"], own["estimate"], look.marker, color=look.colour, markerfacecolor="white")
        group_size_axis(axes, sorted(part["group_size"].unique()))
        log_axis(axes)
        axes.set_title(f"mean success {quality:g}", fontsize="small")
    panels[0].set_ylabel("error of one group")


def _path(panels: list[Axes], table: pd.DataFrame) -> None:
    """Draw relative errors, constants, best group sizes and Assumption 2 along the path."""
    relative, constants, sizes, assumption = panels
    for problem, (words, line) in LINES.items():
        part = table[table["problem"] == problem]
        at = part[part["group_size"] == SIZE].pivot_table(index="quality", columns="estimator", values="estimate")
        policies = part.groupby("quality").first()
        unnamed = "" if problem == "lm-few-shot" else "_"  # a name that begins so is left out of the legend
        for name in ("reinforce", "rloo", "optimal"):
            look = ESTIMATORS[name]
            relative.plot(at.index, at[name] / at["oracle"], line, color=look.colour, marker=look.marker, markersize=3.0)
        for name, look in CONSTANTS.items():
            style = {"color": BLACK, "markersize": 3.5, "label": unnamed + look.label}
            curve(constants, policies.index, policies[name], look._replace(line=line), **style)
        sizes.plot(policies.index, policies["optimum"], line, color=BLACK, label=unnamed + r"$1 + \sqrt{c_3/c_1}$")
        sizes.plot(policies.index, policies["optimum"] - 1.0, line, color=GREY, label=unnamed + r"printed, $\sqrt{c_3/c_1}$")
        for name, (text, colour) in MEASURES.items():
            assumption.plot(policies.index, policies[name], line, color=colour, label=unnamed + text)
        relative.plot([], [], line, color=GREY, label=words)
    for axes, title in zip(panels, ("error / error of $V$", "constants", "best group size", "Assumption 2"), strict=True):
        axes.set_title(title, fontsize="small")
        axes.set_xlabel("mean success")
    relative.axhline(1.0, color=GREY, linewidth=0.8)
    log_axis(relative)
    log_axis(constants)
    sizes.set_ylim(0.0, 4.0)
    assumption.set(ylim=(0.0, 1.3), yticks=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for axes in (relative, constants, sizes):
        axes.legend(fontsize="x-small", loc="lower left")
    assumption.legend(fontsize="x-small", loc="upper left")


def draw(tables: Tables) -> Figure:
    """Draw errors at four qualities above, and the path of the law's constants below."""
    table = tables["quality_path"].dropna(subset="group_size")  # without the rows of statements
    figure, panels = plt.subplots(2, 4, figsize=(9.6, 5.2))
    for axes in panels[0, 1:]:
        axes.sharey(panels[0, 0])
        axes.tick_params(labelleft=False)
    _errors(list(panels[0]), table)
    _path(list(panels[1]), table)
    best = ESTIMATORS["optimal"]
    panels[0, 0].plot([], [], color=best.colour, marker=best.marker, markersize=3.0, label=best.label)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    return figure
