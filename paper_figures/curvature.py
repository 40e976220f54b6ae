"""Curvature of a success probability against the reward's variance, here and within the paper's radius.

Points show the curvature of a prompt's success probability p against the standard deviation of its reward. The policies are
random and log-linear, with one correct response of K. Left: at the policy itself. Right: at a policy within the radius sqrt(V)/X.
Grey dash-dotted lines are the printed bounds and dotted lines the sharp ones, whose constants the legend gives. Solid lines are
the greatest possible curvature at a given V. The coloured dashed line is the greatest curvature for a pair of responses with
opposite features. A larger K allows curvature above the dashed line; the solid line bends where it leaves the dashed one.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, VERMILION, Look
from grpo_theory.theory import GREATEST_LOCAL_CURVATURE, curvature_bound, local_curvature_bound
from paper_figures.content.panels import Tables

PLACE = 320
TABLES = ("curvature",)
LOOKS = {
    2: Look("$K=2$", VERMILION, "o", ""),
    3: Look("$K=3$", BLUE, "^", ""),
    10: Look("$K=10$", GREEN, "x", ""),
}
MOST = 3
"""With three responses or more everything is possible that is possible at all."""


def draw(tables: Tables) -> Figure:
    """Draw one panel for the policy itself, and one for those within the radius."""
    points = tables["curvature"].query("how == 'point' and n_correct == 1")
    p = np.concatenate([np.geomspace(1e-7, 0.01, 100), np.linspace(0.01, 0.5, 400)[1:]])
    deviation = np.sqrt(p * (1.0 - p))
    figure, (here, near) = plt.subplots(1, 2, figsize=(8.6, 4.3), sharex=True, sharey=True)
    for axes, name in ((here, "here"), (near, "within the radius")):
        _scatter(axes, points[points["place"] == name])
        axes.set_xlabel(r"standard deviation of the reward, $\sqrt{V}$")
    local = local_curvature_bound(p, deviation, MOST)
    for axes, printed, sharp, most in (
        (here, 4.0 * deviation**2, 2.0 * deviation**2, curvature_bound(p, MOST)),
        (near, 2.5 * deviation, GREATEST_LOCAL_CURVATURE * deviation, local),
    ):
        axes.plot(deviation, printed, "-.", color=GREY, label=r"printed: $4\,V$, $(5/2)\sqrt{V}$")
        axes.plot(deviation, sharp, ":", color=BLACK, label=r"sharp: $2\,V$, $0.587\sqrt{V}$")
        axes.plot(deviation, most, color=BLACK, label="most at a given $V$")
    here.plot(deviation, curvature_bound(p, 2), "--", color=VERMILION, label="$K=2$, opposite features")
    here.set_title("at the policy")
    near.set_title(r"within the radius $\sqrt{V}/X$")
    here.set(ylabel="curvature $\\|\\nabla^2 p\\|\\,/\\,X^2$", xlim=(0.0, 0.505), ylim=(0.0, 0.32))
    figure.legend(*here.get_legend_handles_labels(), loc="outside lower center", ncols=4, markerscale=1.8)
    return figure


def _scatter(axes: Axes, points: pd.DataFrame) -> None:
    for k, look in LOOKS.items():
        part = points[points["n_responses"] == k]
        axes.scatter(
            np.sqrt(part["variance"]),
            part["estimate"],
            s=11,
            edgecolors=None if look.marker == "x" else look.colour,
            marker=look.marker,
            alpha=0.6,
            facecolors="none" if k == MOST else look.colour,
            linewidths=0.0 if look.marker == "o" else 0.7,
            label=look.label,
        )
