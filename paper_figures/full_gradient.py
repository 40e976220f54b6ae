"""A real model's full gradient beside that of its head: noise by baseline, group size, curvature's proxy, cosines.

Gradients of SmolLM2-135M-Instruct are estimated from sampled answers to {questions} questions: small sums, other sums, and the
larger of a pair of numbers. Solid lines and filled marks are for gradients with respect to all parameters. Dashed lines and open
marks are for gradients with respect to the output head alone. Top left: the noise of a group's estimate about its prompt's
gradient, divided by the noise with the value baseline. Bars are 95% intervals over prompts. Intervals at the right edge are for
ratios that are the same at all group sizes. Top right: the error at a fixed number of responses, divided by its least value.
Shades are 95% intervals of the best group size, hatched for the head. Bottom left: curvature (trace of the Fisher matrix, over
its mean) against the reward's variance, for all parameters. The legend gives the correlation over all questions and over the
questions of each kind. Bottom right: the density of cosines of different prompts' gradients. Dotted lines are at |cos| =
{NEAR_ORTHOGONAL:g}. The paper reports that {PRINTED_NEAR:.0%} of pairs lie between them at the start of training.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from grpo_theory.page.style import BLACK, BROWN, ESTIMATORS, GREY, PURPLE, Look
from paper_figures.content.panels import Tables, group_size_axis, lengths, marks
from simulations.gradient.full_gradient import PRINTED, PRINTED_NEAR  # noqa: F401, for the caption
from simulations.gradient.sampled_statistics import NEAR_ORTHOGONAL

PLACE = 57
TABLES = ("full_gradient",)
ALL, HEAD = "all parameters", "head"
SIZES = (2, 4, 8, 16, 32, 64)
KINDS = {
    "small sum": ("small sums", PURPLE, "o"),
    "sum": ("other sums", GREY, "s"),
    "larger": ("larger of a pair", BROWN, "^"),
}
SHADES: dict[str, dict[str, Any]] = {
    ALL: {"facecolor": GREY, "alpha": 0.4, "linewidth": 0.0},
    HEAD: {"facecolor": "none", "edgecolor": GREY, "hatch": "////", "linewidth": 0.0},
}
"""Of intervals of the best group size."""
MARGIN = 84.0
"""The group size at which the intervals of what does not depend on it are drawn, beyond the others."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    return {"questions": len(tables["full_gradient"].query("quantity == 'prompt' and gradient == @ALL"))}


def draw(tables: Tables) -> Figure:
    """Draw four panels."""
    table = tables["full_gradient"].dropna(subset="quantity")  # without the rows of statements
    whole = table[(table["questions"] == "all kinds") & ~table["quantity"].isin(["prompt", "density"])]
    at = whole.set_index(["gradient", "quantity", "group_size"]).sort_index()
    figure, ((noise, size), (proxy, cosines)) = plt.subplots(2, 2, figsize=(9.2, 7.0))
    _noise(noise, at)
    _size(size, at)
    _proxy(proxy, table[table["gradient"] == ALL])
    _cosines(cosines, table, at)
    return figure


def _noise(axes: Axes, at: pd.DataFrame) -> None:
    sizes = np.array(SIZES[1:], dtype=float)
    for gradient, line, filled, shift in ((ALL, "-", True, 0.97), (HEAD, "--", False, 1.03)):
        for name, quantity in (("reinforce", "value against none"), ("optimal", "value against optimal")):
            row, look = at.loc[(gradient, quantity, 0)], ESTIMATORS[name]
            low, middle, high = (1.0 / (1.0 + row[which]) for which in ("high", "estimate", "low"))
            axes.plot(sizes, np.full(len(sizes), middle), line, color=look.colour)
            _bar(axes, MARGIN * shift**2, middle, [[middle - low], [high - middle]], look, filled)
        rows, look = at.loc[[(gradient, "leave-one-out against value", int(size)) for size in sizes]], ESTIMATORS["rloo"]
        axes.plot(sizes, 1.0 + rows["estimate"], line, color=look.colour)
        _bar(axes, sizes * shift, 1.0 + rows["estimate"], lengths(rows), look, filled)
    axes.axhline(1.0, color=ESTIMATORS["oracle"].colour, linewidth=1.0)
    for name, where, text in (
        ("rloo", (4.6, 1.43), "leave-one-out mean"),
        ("oracle", (4.0, 1.02), "value baseline $V(x)$"),
        ("reinforce", (4.0, 0.66), "no baseline"),
        ("optimal", (4.0, 0.37), "optimal baseline $b^*(x)$"),
    ):
        axes.text(*where, text, color=ESTIMATORS[name].colour, fontsize="small")
    for gradient, line, face in ((ALL, "-", "black"), (HEAD, "--", "white")):
        axes.plot([], [], line, color="black", marker="D", markerfacecolor=face, label=gradient)
    axes.legend(fontsize="small", loc="upper right")
    group_size_axis(axes, SIZES[1:])
    axes.set(ylabel="noise over that of the value baseline", ylim=(0.3, 1.5), title="baselines")


def _bar(axes: Axes, x: ArrayLike, y: ArrayLike, bars: ArrayLike, look: Look, filled: bool) -> None:
    face = look.colour if filled else "white"
    marks(axes, x, y, look, yerr=bars, markerfacecolor=face, elinewidth=1.0, capsize=2.0, zorder=3)


def _size(axes: Axes, at: pd.DataFrame) -> None:
    grid = np.geomspace(2.0, 64.0, 200)
    for gradient, line in ((ALL, "-"), (HEAD, "--")):
        c1, c2, c3 = (at.loc[(gradient, name, 0), "estimate"] for name in ("c1", "c2", "c3"))
        best = at.loc[(gradient, "G*", 0)]
        error, least = c1 * grid + c2 + c3 * grid / (grid - 1.0), c1 + c2 + c3 + 2.0 * np.sqrt(c1 * c3)
        label = f"{gradient}: $G^*$ = {_with_limits(best)}"
        axes.plot(grid, error / least, line, color=BLACK, label=label)
        axes.axvspan(best["low"], best["high"], **SHADES[gradient])
    group_size_axis(axes, SIZES)
    axes.set(ylabel="error over the least", ylim=(0.8, None), title="group size")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0.2, 1.0))


def _proxy(axes: Axes, table: pd.DataFrame) -> None:
    prompts, found = table[table["quantity"] == "prompt"], table[table["quantity"] == "Fisher, trace"].set_index("questions")
    for kind, (name, colour, marker) in KINDS.items():
        own, label = prompts[prompts["kind"] == kind], f"{name}: {_with_limits(found.loc[kind])}"
        axes.plot(own["variance"], own["estimate"], marker, color=colour, markersize=4.0, alpha=0.8, label=label)
    axes.plot([], [], " ", label=f"all kinds: {_with_limits(found.loc['all kinds'])}; printed: {PRINTED:g}")
    axes.set(xlabel="variance of the reward", ylabel=r"$E\|W\|^2$ over its mean", ylim=(0.0, 5.8), title="curvature's proxy")
    axes.legend(fontsize="small", loc="upper left", title="correlation", alignment="left", title_fontsize="small")


def _with_limits(row: pd.Series) -> str:
    return f"{row['estimate']:.2f} ({row['low']:.2f} to {row['high']:.2f})".replace("-", "\u2212")


def _cosines(axes: Axes, table: pd.DataFrame, at: pd.DataFrame) -> None:
    for gradient, line in ((ALL, "-"), (HEAD, "--")):
        density = table[(table["gradient"] == gradient) & (table["quantity"] == "density")]
        share = at.loc[(gradient, f"share below {NEAR_ORTHOGONAL:g}", 0), "estimate"]
        label = f"{gradient}: {100.0 * share:.0f}%"
        axes.plot(density["cosine"], density["estimate"], line, color=BLACK, label=label)
    for limit in (-NEAR_ORTHOGONAL, NEAR_ORTHOGONAL):
        axes.axvline(limit, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set(xlabel="cosine of two prompts' gradients", xlim=(-1.0, 1.0), xticks=(-1.0, -0.5, 0.0, 0.5, 1.0))
    axes.set(ylabel="density", ylim=(0.0, 4.6), title="orthogonality")
    title = f"pairs with |cos| < {NEAR_ORTHOGONAL:g}"
    axes.legend(fontsize="small", loc="upper right", title=title, title_fontsize="small")
