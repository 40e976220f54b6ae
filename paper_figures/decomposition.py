"""The three terms of the scaling law at a fixed budget, and the group size that balances them.

The mean squared error of the leave-one-out gradient is shown at a fixed budget of N = BG = {BUDGET:,} responses. It is the sum of
the variance between prompts (c1/B), the oracle's variance (c2/BG), and what the estimated baseline adds (c3/BG(G-1)). Lines are
exact. Points are simulated at a smaller budget and scaled to this one, with 95% intervals. Vertical lines mark the exact
minimiser, 1 + sqrt(c3/c1), and the printed one, sqrt(c3/c1).
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, CONSTANTS, LANGUAGE_MODEL, PROBLEMS, VERMILION, Look
from grpo_theory.theory import GroupSizeLaw
from paper_figures.content.panels import Tables, exact_line, group_size_axis, log_axis, points

PLACE = 20
TABLES = ("error_law", "gradient_error")
BUDGET = 1024
TOTAL = Look("total", BLACK, "o", "-")
TERMS = ("between prompts, $c_1/B$", "oracle, $c_2/BG$", "baseline estimated, $c_3/BG(G-1)$")


def draw(tables: Tables) -> Figure:
    """Draw three panels, one for each policy of the language model."""
    constants = tables["error_law"].groupby("problem")[["c1", "c2", "c3"]].first()
    simulated = tables["gradient_error"].query("quantity == 'mse' and estimator == 'rloo'")
    figure, panels = plt.subplots(1, 3, figsize=(9.0, 3.5), sharey=True)
    sizes = np.geomspace(2.0, 64.0, 200)
    for axes, problem in zip(panels, LANGUAGE_MODEL, strict=True):
        law = GroupSizeLaw(*(float(constants.loc[problem, name]) for name in ("c1", "c2", "c3")))
        exact_line(axes, sizes, law.mse(BUDGET / sizes, sizes), TOTAL)
        terms = (law.c1 * sizes, np.full_like(sizes, law.c2), law.c3 / (sizes - 1.0))
        for look, term, label in zip(CONSTANTS.values(), terms, TERMS, strict=True):
            axes.plot(sizes, term / BUDGET, look.line, color=look.colour, label=label)
        part = simulated[simulated["problem"] == problem]
        scale = part["batch_size"] * part["group_size"] / BUDGET
        points(axes, part["group_size"], part["estimate"] * scale, part["standard_error"] * scale, TOTAL)
        axes.axvline(law.optimum, color=VERMILION, linewidth=1.0, label="exact minimiser $G^*$")
        axes.axvline(law.paper_optimum, color=VERMILION, linewidth=1.0, linestyle=(0, (2, 2)), label="printed $G^*$")
        group_size_axis(axes, (2, 4, 8, 16, 32, 64))
        log_axis(axes)
        axes.set_title(f"{PROBLEMS[problem].label}\n$G^*$ = {law.optimum:.2f}, printed {law.paper_optimum:.2f}")
    panels[0].set_ylabel(f"MSE of the gradient at $N$ = {BUDGET}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
