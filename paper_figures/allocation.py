"""How responses are shared out among prompts: what a rule gains in one step, and in whole runs.

Left: the exact error of one step's gradient, divided by the error with the best sizes. In this panel, prompts get {MEAN}
responses on average. Each prompt gets {LEAST} to {HIGH}. The step starts from the initial policy, so its current rates are those
of the start. A world's mark is the mean over its draws. Middle and right: the success at the end of whole runs, in the mean over
{DRAWS} draws of a world. The bars are single 95% limits that count draws, runs and the choice of the step. All rules spend the
same number of responses: {BATCH} prompts of {GROUP} responses per step on average. Each rule has the best of the steps tried. The
dotted line marks equal sizes with plain ascent. The estimator is the leave-one-out mean. Unless labelled otherwise, rules know
the success rates and traces of the sampling policy exactly. Rules labelled "of the start" know the exact rates of the initial
policy instead. The rule labelled "rates seen so far" guesses the rates from what the run has seen of the prompt.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from grpo_theory.page.style import BLACK, GREEN, GREY, ORANGE, PURPLE, VERMILION, Look
from paper_figures.content.panels import WORDS, Tables, legend_below, line_between_rows, marks, ticks
from simulations.runs.allocation import BATCH, DRAWS, GROUP, TITLES  # noqa: F401, for the caption
from simulations.runs.allocation import LOW as LEAST  # noqa: F401, for the caption
from simulations.runs.allocation_step import HIGH, MEAN  # noqa: F401, for the caption

PLACE = 350
TABLES = ("allocation", "allocation_step")
ROWS = WORDS["allocation"]
PROBLEMS = {
    "lm-instruct": Look("SmolLM2, instruct", GREEN, "D", ""),
    "lm-answers": Look("SmolLM2, answers", PURPLE, "^", ""),
    "mixed": Look("mixed difficulty", GREY, "X", ""),
    "world shared": Look("128 prompts, shared features", VERMILION, "s", ""),
}
OPTIMISERS = {"SGD": Look("plain ascent", BLACK, "o", ""), "Adam": Look("Adam", ORANGE, "s", "")}


def draw(tables: Tables) -> Figure:
    """Draw rules as rows: errors of one step, and a panel of whole runs for each world."""
    runs = tables["allocation"].query("quantity == 'success'")
    runs = runs[runs["responses"] == runs["responses"].max()]
    worlds = [world for world in TITLES if world in set(runs["world"])]
    size, widths = (3.6 + 2.9 * len(worlds), 3.9), [1.35] + [1.0] * len(worlds)
    figure, panels = plt.subplots(1, 1 + len(worlds), figsize=size, sharey=True, width_ratios=widths)
    errors(panels[0], tables["allocation_step"])
    for axes, world in zip(panels[1:], worlds, strict=True):
        successes(axes, runs[runs["world"] == world])
        axes.set_title(f"whole runs, {TITLES[world]}", fontsize="small")
    panels[0].set_yticks(np.arange(len(ROWS)), list(ROWS.values()))
    panels[0].set_ylim(len(ROWS) - 0.5, -0.5)
    for axes in panels:
        line_between_rows(axes, len(ROWS))
    legend_below(figure, panels[:2], ncols=3)
    return figure


def errors(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the error of each rule over the least, a mark a problem."""
    table = table[table["quantity"] == "error"]
    shown = {name: look for name, look in PROBLEMS.items() if name in set(table["problem"])}
    for shift, (name, look) in zip(np.linspace(-0.24, 0.24, len(shown)), shown.items(), strict=True):
        own = table[table["problem"] == name].set_index("rule")["estimate"]
        axes.plot(own.reindex(list(ROWS)), np.arange(len(ROWS)) + shift, look.marker, color=look.colour, label=look.label)
    axes.set_xscale("log")
    ticks(axes.xaxis, [1.0, 1.5, 2.0, 3.0, 5.0, 10.0])
    axes.set(xlim=(0.93, None), xlabel="error / least error")
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.set_title("one step, exact", fontsize="small")


def successes(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the success at the end of each rule's runs, a mark an optimiser."""
    for shift, (name, look) in zip((-0.13, 0.13), OPTIMISERS.items(), strict=True):
        own = table[table["optimiser"] == name].set_index("rule").reindex(list(ROWS)).dropna(how="all")
        if len(own):
            half, style = own["high"] - own["estimate"], {"markerfacecolor": look.colour, "label": look.label, "elinewidth": 1.1}
            marks(axes, own["estimate"], np.arange(len(ROWS)) + shift, look, xerr=half, **style)
    equal = table[(table["rule"] == "uniform") & (table["optimiser"] == "SGD")]["estimate"].iloc[0]
    axes.axvline(equal, color=BLACK, linewidth=0.9, linestyle=":")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("success at the end")
