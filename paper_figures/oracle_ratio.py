"""How fast the leave-one-out estimator comes up to the oracle."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import PROBLEMS, exact_line, group_size_axis, log_axis, points
from paper_figures.group_law import fine, group_law

PLACE = 30
TABLES = ("gradient_error",)
CAPTION = (
    "The vertical axis is the error of the leave-one-out estimator over the oracle's, less 1. On the left the error is that "
    "of one prompt's gradient, averaged over prompts. On the right it is that of a batch of prompts, and includes the "
    "variance between prompts. Lines are exact. Points are simulated paired differences, with 95% intervals."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw two panels on log axes."""
    table = tables["gradient_error"]
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 4.0))
    titles = {"prompt_mse": "one prompt, averaged over prompts", "mse": "batch of prompts"}
    for axes, (quantity, title) in zip(panels, titles.items(), strict=True):
        part = table[table["quantity"] == quantity]
        for problem, look in PROBLEMS.items():
            own = part[part["problem"] == problem].set_index(["estimator", "group_size"]).sort_index()
            oracle = own.loc["oracle", "prediction"]
            difference = own.loc["rloo - oracle"]
            sizes = oracle.index.to_numpy()
            every = fine(sizes)
            exact_line(axes, every, group_law(sizes, difference["prediction"])(every) / group_law(sizes, oracle)(every), look)
            points(axes, sizes, difference["estimate"] / oracle, difference["standard_error"] / oracle, look)
        log_axis(axes)
        group_size_axis(axes, sizes.tolist())
        axes.set_title(title)
    panels[0].set_ylabel("MSE(leave-one-out) / MSE(oracle) $-$ 1")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure
