"""The second moment of the trajectory ratio against the horizon, and what clipping does to it.

rho is the trajectory ratio of a policy that has moved by a drift in a random direction. It is computed on trees with
{VOCABULARY_SIZE} tokens to choose from. The left panel shows the second moment of rho under the old policy. Bars are the range
over {trees} random trees, and are moved aside from each other. Dotted lines are the bound exp(T L drift^2) of every softmax
policy with linear logits. The middle panel shows the same with ratios above {BOUND:g} dropped (solid) or cut to {BOUND:g}
(dashed). Its dotted line is the bound {BOUND:g}. The right panel shows the share of responses with a ratio above {BOUND:g}. It is
taken among the responses that the old policy draws (solid), or that the current one would draw (dashed). Lines are means over the
trees, each computed exactly.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from grpo_theory.page.style import GREY, Look
from paper_figures.content.panels import Tables, checkpoint_colours, curve, marks
from simulations.sequence.ratio_moments import HIGH, VOCABULARY_SIZE  # noqa: F401, for the caption

PLACE = 210
TABLES = ("ratio_moments",)
DRIFTS = {
    drift: Look(f"drift {drift:g}", colour, marker, "-")
    for drift, marker, colour in zip((0.1, 0.3, 1.0), "osD", checkpoint_colours(3), strict=True)
}
CLIPPED = {"dropped": ("dropped", "-"), "capped": ("cut to the limit", "--")}
LEFT_OUT = {"share dropped": ("of old policy's draws", "-"), "mass dropped": ("of current one's", "--")}
"""What each line of the middle panel is, and of the right one."""
BESIDE = dict(zip(DRIFTS, (-0.15, 0.0, 0.15), strict=True))
"""By how many tokens the bars of a drift are moved, so that they stand beside each other."""
BOUND = 1.0 + HIGH
MOST = 500.0
"""Where the axis of second moments ends; the bound of the largest drift goes on."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    return {"trees": tables["ratio_moments"]["tree"].nunique()}


def draw(tables: Tables) -> Figure:
    """Draw the second moment, that with clips, and the share that is clipped."""
    table = tables["ratio_moments"]
    figure, (free, clipped, share) = plt.subplots(1, 3, figsize=(10.0, 3.9))
    for drift, look in DRIFTS.items():
        part = table[table["drift"] == drift].groupby(["ratio", "horizon"])["estimate"]
        mean, least, most = part.mean(), part.min(), part.max()
        horizons = mean["trajectory"].index.to_numpy()
        whole = mean["trajectory"]
        spans = [whole - least["trajectory"], most["trajectory"] - whole]
        style = {"fmt": look.marker + "-", "elinewidth": 1.0, "capsize": 2.0}
        marks(free, horizons + BESIDE[drift], whole, look, yerr=spans, **style)
        for axes, lines in ((clipped, CLIPPED), (share, LEFT_OUT)):
            for name, (_, line) in lines.items():
                curve(axes, horizons, mean[name], look._replace(line=line), label=None)
        every = np.linspace(horizons[0], horizons[-1], 200)
        free.plot(every, np.exp(every * drift**2), ":", color=look.colour, linewidth=1.1)
    free.set(yscale="log", ylim=(0.8, MOST))
    free.yaxis.set_major_formatter("{x:g}")
    clipped.axhline(BOUND, color=GREY, linestyle=":", linewidth=1.1)
    clipped.set_ylim(0.0, 1.3)
    share.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    titles = (r"$E_0\,\rho^2$", rf"$E_0\,\rho^2$, clipped above {BOUND:g}", "responses left out by dropping")
    for axes, title in zip((free, clipped, share), titles, strict=True):
        axes.set(title=title, xlabel="horizon $T$ (tokens)")
        axes.xaxis.set_major_locator(MultipleLocator(2.0))
    # Lines are named in grey: their colours are the drifts'.
    for axes, named in ((free, [("mean", "-")]), (clipped, [*CLIPPED.values()]), (share, [*LEFT_OUT.values()])):
        for label, line in named:
            axes.plot([], [], line, color=GREY, label=label)
    free.plot([], [], ":", color=GREY, linewidth=1.1, label="bound")
    free.plot([], [], "|", color=GREY, markersize=9.0, markeredgewidth=1.0, label="range")
    for axes in (free, clipped, share):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize="small", ncols=3, columnspacing=1.2)
    handles = [curve(free, [], [], look) for look in DRIFTS.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
