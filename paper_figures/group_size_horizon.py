"""At a maximiser the best group size depends on how long one trains.

Training has a constant step and starts from the maximiser, where c1, c2 and c3 stay as they are. Left: the group size that trains
the best policy, against the number of steps, exact to first order in the noise. The dashed line is the group size of the
gradient's least error. Right: the mean gap with G = {LARGE} divided by the mean gap with G = {SMALL}, simulated with 95%
intervals, and predicted.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, NORMAL_95, PURPLE
from paper_figures.content.panels import Tables, log_axis
from simulations.training.group_size_horizon import LARGE, SMALL

PLACE = 130
TABLES = ("group_size_horizon",)


def draw(tables: Tables) -> Figure:
    """Draw the exact curve, and the two simulated horizons."""
    table = tables["group_size_horizon"]
    exact = table[table["quantity"] == "exact"].sort_values("steps")
    simulated = table[table["quantity"] == "simulated"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.2), width_ratios=(1.5, 1.0))
    left.plot(exact["steps"], exact["estimate"], color=PURPLE, marker=".", markersize=4.0, linewidth=1.0, label="best policy")
    left.axhline(
        exact["gradient_optimum"].iloc[0], color=BLACK, linewidth=1.1, linestyle="--", label="least error of the gradient"
    )
    left.set_xscale("log")
    left.xaxis.set_major_formatter("{x:g}")
    log_axis(left)
    left.set_ylim(3.5, 11.0)
    left.set_yticks([4, 5, 6, 8, 10])
    left.set(xlabel="steps $n$", ylabel="best group size")
    left.legend(fontsize="small")
    for x, (_, part) in enumerate(simulated.groupby("steps")):
        at = part.set_index("group_size")
        small, large = at.loc[SMALL], at.loc[LARGE]
        ratio = large["estimate"] / small["estimate"]
        relative = sum((row["standard_error"] / row["estimate"]) ** 2 for row in (small, large)) ** 0.5
        law = large["prediction"] / small["prediction"]
        predicted = right.plot(x, law, "_", color=PURPLE, markersize=28.0, markeredgewidth=2.0)
        found = right.errorbar(
            x, ratio, yerr=NORMAL_95 * ratio * relative, fmt="D", color=BLACK, markerfacecolor="white", elinewidth=1.1, zorder=3
        )
    counts = sorted(simulated["steps"].unique())
    right.axhline(1.0, color=BLACK, linewidth=0.9)
    right.set_xticks(range(len(counts)), [f"{count:g}" for count in counts])
    right.legend([found, *predicted], ["simulated", "predicted"], fontsize="small", markerscale=0.6)
    right.set(xlabel="steps $n$", xlim=(-0.6, len(counts) - 0.4), ylabel=f"gap, $G$ = {LARGE} / $G$ = {SMALL}")
    return figure
