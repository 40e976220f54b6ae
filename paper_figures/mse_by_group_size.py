"""Figure 4 of arXiv 2603.01162, on the head of a real language model.

The upper row shows the mean squared error of one group's gradient about its prompt's true gradient, averaged over the questions.
Columns are policies of SmolLM2-135M in the order of their mean value. This is Figure 4 of arXiv 2603.01162 on the head of a
language model. The lower row divides each error by the oracle's. Lines are exact, by enumeration. Points are simulated, with 95%
intervals. The dotted vertical line is the break-even group size, at which the leave-one-out mean and no baseline have the same
error.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from grpo_theory.page.style import ESTIMATORS, LANGUAGE_MODEL, PROBLEMS
from paper_figures.content.panels import Tables, exact_line, group_size_axis, log_axis, points
from paper_figures.group_law import fine, group_law

PLACE = 10
ABOUT = "U6"
TABLES = ("gradient_error", "baselines")
SHOWN = ("reinforce", "oracle", "rloo")


def draw(tables: Tables) -> Figure:
    """Draw two rows of three panels, one column for each policy."""
    table = tables["gradient_error"].query("quantity == 'prompt_mse'")
    facts = tables["baselines"].groupby("problem")[["value", "break_even"]].first()
    figure, panels = plt.subplots(2, 3, figsize=(9.0, 5.4), sharex=True, sharey="row")
    for column, problem in enumerate(sorted(LANGUAGE_MODEL, key=lambda name: facts.loc[name, "value"])):
        top, bottom = panels[:, column]
        own = table[table["problem"] == problem].set_index(["estimator", "group_size"]).sort_index()
        oracle = own.loc["oracle", "prediction"]
        sizes = fine(oracle.index)
        laws = {name: group_law(oracle.index, own.loc[name, "prediction"])(sizes) for name in SHOWN}
        for name in SHOWN:
            part, look = own.loc[name], ESTIMATORS[name]
            for axes, unit, exact in ((top, 1.0, 1.0), (bottom, oracle, laws["oracle"])):
                exact_line(axes, sizes, laws[name] / exact, look)
                points(axes, part.index, part["estimate"] / unit, part["standard_error"] / unit, look)
        bottom.axvline(facts.loc[problem, "break_even"], color="#7F7F7F", linewidth=1.0, linestyle=":", label="break-even")
        log_axis(top)
        group_size_axis(bottom, sorted(table["group_size"].unique()))
        top.set_title(f"{PROBLEMS[problem].label}\nmean value {facts.loc[problem, 'value']:.3f}")
    panels[0, 0].set_ylabel(r"$E_x\,\|\hat g(x) - g(x)\|^2$")
    panels[1, 0].set_ylabel("relative to the oracle")
    figure.legend(*panels[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
