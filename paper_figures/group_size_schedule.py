"""A group size that follows the policy against fixed ones.

Left: plans of the group size at the budget N = BG = {BUDGET:,}. Right: the loss of each plan when training ends, relative to the
loss of the best fixed group size. Marks are ratios of simulated losses, with 95% intervals. Thick grey ticks are ratios of losses
predicted by the law to first order in the noise. The best fixed group size is known only after training.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, NORMAL_95, VERMILION, Look
from paper_figures.content.panels import Tables, curve, log_axis, marks
from simulations.training.group_size_schedule import BUDGET  # noqa: F401, for the caption

PLACE = 140
TABLES = ("group_size_schedule",)
TITLES = {"kl-linear": "linear features, KL penalty", "kl-tabular": "tabular, KL penalty"}
LOOKS = {
    "start": Look("best for the start's gradient, kept", VERMILION, "s", ":"),
    "fixed": Look("best fixed, in hindsight", BLACK, "o", "-"),
    "current": Look("best for the current gradient", BLUE, "D", "-"),
    "ahead": Look("best plan for the final policy", GREEN, "^", "--"),
}

WIDE: dict[str, dict[str, Any]] = {"current": {"linewidth": 4.0, "alpha": 0.45}}
"""Lines on which another lies are wide, so that both are seen."""


def draw(tables: Tables) -> Figure:
    """Draw two panels a problem."""
    table = tables["group_size_schedule"]
    figure, panels = plt.subplots(2, 2, figsize=(8.6, 5.2))
    for (left, right), (problem, title) in zip(panels, TITLES.items(), strict=True):
        part = table[table["problem"] == problem]
        losses = part[part["step"] == 1].set_index("plan").loc[list(LOOKS)]
        fixed = losses.loc["fixed"]
        for y, (plan, look) in enumerate(LOOKS.items()):
            rows = part[part["plan"] == plan].sort_values("step")
            left.step(rows["step"], rows["group_size"], look.line, where="mid", color=look.colour, **WIDE.get(plan, {}))
            predicted = losses.loc[plan, "prediction"] / fixed["prediction"]
            right.plot(predicted, y, "|", color=GREY, markersize=22.0, markeredgewidth=2.5, alpha=0.6)
            ratio, half = _relative(losses.loc[plan], fixed)
            marks(right, ratio, y, look, xerr=half, elinewidth=1.1, capsize=2.5)
        log_axis(left)
        left.set_ylabel("group size $G$")
        left.set_title(title, fontsize="small")
        right.axvline(1.0, color=GREY, linewidth=0.9, zorder=0)
        right.set_ylim(len(LOOKS) - 0.4, -0.6)
        right.set_yticks([])
        right.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        right.set_title(title, fontsize="small")
    panels[1, 0].set_xlabel("step")
    panels[1, 1].set_xlabel("loss / loss of the best fixed $G$")
    handles = [curve(panels[0, 0], [], [], look, **WIDE.get(plan, {})) for plan, look in LOOKS.items()]
    tick: dict[str, Any] = {"color": GREY, "markersize": 12.0, "markeredgewidth": 2.5, "alpha": 0.6, "linestyle": "none"}
    handles += panels[0, 1].plot([], [], marker="|", label="predicted loss (right)", **tick)
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _relative(row: pd.Series, fixed: pd.Series) -> tuple[float, float]:
    """Return a loss over that of the best fixed size, and the half of its interval: runs of two plans are independent."""
    ratio = float(row["estimate"] / fixed["estimate"])
    if row.name == fixed.name:
        return ratio, 0.0
    errors = [one["standard_error"] / one["estimate"] for one in (row, fixed)]
    return ratio, NORMAL_95 * abs(ratio) * float(np.hypot(*errors))
