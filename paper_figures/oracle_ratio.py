"""How fast the leave-one-out estimator comes up to the oracle.

The vertical axis shows the error of the leave-one-out estimator divided by the oracle's, less 1. On the left, the error is that
of one prompt's gradient, averaged over prompts. On the right, it is that of a batch of prompts, and includes the variance between
prompts. Lines are exact. Points are simulated paired differences, with 95% intervals. Dotted grey lines are the made-up problems
of the gallery. The axis ends below the lines, and points and intervals beyond its end are cut.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import GREY, LANGUAGE_MODEL, PROBLEMS, Look
from paper_figures.content.panels import Tables, exact_line, group_size_axis, log_axis, points
from paper_figures.group_law import fine, group_law

PLACE = 30
TABLES = ("gradient_error",)
LOWEST = 0.3
"""Where the axis ends, as a share of the lowest line."""


def draw(tables: Tables) -> Figure:
    """Draw two panels on log axes."""
    table = tables["gradient_error"]
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 4.0))
    titles = {"prompt_mse": "one prompt, averaged over prompts", "mse": "batch of prompts"}
    for axes, (quantity, title) in zip(panels, titles.items(), strict=True):
        part = table[table["quantity"] == quantity]
        lowest = np.inf
        for problem, look in _looks():
            own = part[part["problem"] == problem].set_index(["estimator", "group_size"]).sort_index()
            oracle = own.loc["oracle", "prediction"]
            difference = own.loc["rloo - oracle"]
            sizes = oracle.index.to_numpy()
            every = fine(sizes)
            exact = group_law(sizes, difference["prediction"])(every) / group_law(sizes, oracle)(every)
            lowest = min(lowest, float(exact.min()))
            exact_line(axes, every, exact, look)
            points(axes, sizes, difference["estimate"] / oracle, difference["standard_error"] / oracle, look)
        log_axis(axes)
        axes.set_ylim(bottom=LOWEST * lowest)
        group_size_axis(axes, sizes.tolist())
        axes.set_title(title)
    panels[0].set_ylabel("MSE(leave-one-out) / MSE(oracle) $-$ 1")
    shown = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)
    return figure


def _looks() -> list[tuple[str, Look]]:
    """Return the looks of the problems: grey and dotted but for the language model's, which are drawn last."""
    grey = Look("made-up problems", GREY, ".", ":")
    made_up = [(name, grey) for name in PROBLEMS if name not in LANGUAGE_MODEL]
    return made_up + [(name, PROBLEMS[name]) for name in LANGUAGE_MODEL]
