"""The second moment of the trajectory ratio against the horizon, and what clipping does to it."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from grpo_theory.page.style import BLUE, GREY, ORANGE, VERMILION, Look
from simulations.sequence.ratio_moments import HIGH, VOCABULARY_SIZE

PLACE = 210
TABLES = ("ratio_moments",)
DRIFTS = {
    0.1: Look("drift 0.1", BLUE, "o", "-"),
    0.3: Look("drift 0.3", ORANGE, "s", "-"),
    1.0: Look("drift 1", VERMILION, "D", "-"),
}
BOUND = 1.0 + HIGH
MOST = 500.0
"""Where the axis of second moments ends; the bound of the largest drift goes on."""


def caption(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say how to read the figure, with the settings of these tables."""
    trees = tables["ratio_moments"]["tree"].nunique()
    return (
        "rho is the trajectory ratio of a policy that has moved by a drift in a random direction, on trees with "
        f"{VOCABULARY_SIZE} tokens to choose from. Left: its second moment under the old policy, with the range over {trees} "
        "random trees, and the bound exp(T L drift^2) of every softmax policy with linear logits (grey). Middle: the same "
        f"with ratios above {BOUND:g} dropped (solid) or cut to {BOUND:g} (dashed), and the bound {BOUND:g} (grey). "
        f"Right: share of responses with a ratio above {BOUND:g}, among those that the old policy draws (solid) and among "
        "those that the current one would draw (dashed). Lines are means over the trees, each computed exactly."
    )


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the second moment, that with clips, and the share that is clipped."""
    table = tables["ratio_moments"]
    figure, (free, clipped, share) = plt.subplots(1, 3, figsize=(10.0, 3.3))
    for drift, look in DRIFTS.items():
        part = table[table["drift"] == drift].groupby(["ratio", "horizon"])["estimate"]
        mean, least, most = part.mean(), part.min(), part.max()
        horizons = mean["trajectory"].index.to_numpy()
        for axes, name, line in (
            (free, "trajectory", "-"),
            (clipped, "dropped", "-"),
            (clipped, "capped", "--"),
            (share, "share dropped", "-"),
            (share, "mass dropped", "--"),
        ):
            label = look.label if line == "-" else None
            axes.plot(horizons, mean[name], line, color=look.colour, marker=look.marker, markerfacecolor="white", label=label)
            if axes is free:
                axes.fill_between(horizons, least[name], most[name], color=look.colour, alpha=0.12, linewidth=0.0)
        every = np.linspace(horizons[0], horizons[-1], 200)
        free.plot(every, np.exp(every * drift**2), ":", color=GREY, linewidth=1.1)
    free.set_yscale("log")
    free.yaxis.set_major_formatter("{x:g}")
    free.set_ylim(0.8, MOST)
    clipped.axhline(BOUND, color=GREY, linestyle=":", linewidth=1.1)
    clipped.set_ylim(0.0, 1.3)
    share.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    titles = (r"$E_0\,\rho^2$", rf"$E_0\,\rho^2$, clipped above {BOUND:g}", "responses left out by dropping")
    for axes, title in zip((free, clipped, share), titles, strict=True):
        axes.set_title(title)
        axes.set_xlabel("horizon $T$ (tokens)")
        axes.xaxis.set_major_locator(MultipleLocator(2.0))
    figure.legend(*free.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
