"""One style for all figures: colours that survive colour blindness, markers that survive black and white."""

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, ScalarFormatter
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from grpo_theory.validation import as_array

NORMAL_95 = 1.959963984540054
"""Half-width of a 95% interval in standard errors."""
COVERAGES = (0.02, 0.1, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.999)
"""Ticks of an axis of coverages; those beyond the first and last are drawn there."""


class Look(NamedTuple):
    """How an estimator, or a problem, is drawn everywhere."""

    label: str
    colour: str
    marker: str
    line: str


# Okabe and Ito's palette, with brown for the yellow that white paper swallows.
BLACK, ORANGE, SKY, GREEN, BROWN, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#8C6D1F",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)

GREY = "#7F7F7F"

ESTIMATORS = {
    "reinforce": Look("no baseline", ORANGE, "s", ":"),
    "oracle": Look("oracle: value baseline $V(x)$", BLACK, "o", "-"),
    "rloo": Look("leave-one-out mean (GRPO-type)", BLUE, "D", "--"),
    "optimal": Look("oracle: optimal baseline $b^*(x)$", GREEN, "^", "-"),
    "optimal_loo": Look("leave-one-out $b^*$", PURPLE, "v", "--"),
    "dr_grpo": Look("Dr. GRPO: own sample in the mean", GREY, "P", "-."),
    "grpo": Look("GRPO: divided by the standard deviation", VERMILION, "X", "-."),
}

PROBLEMS = {
    "lm-zero-shot": Look("SmolLM2, zero-shot", BLUE, "o", "-"),
    "lm-few-shot": Look("SmolLM2, few-shot", VERMILION, "s", "-"),
    "lm-instruct": Look("SmolLM2, instruct", GREEN, "D", "-"),
    "two-arms": Look("two arms", BLACK, "<", ":"),
    "uniform": Look("tabular, uniform", BROWN, ">", ":"),
    "tabular": Look("tabular", PURPLE, "^", ":"),
    "linear": Look("linear features", SKY, "v", ":"),
    "graded": Look("three-valued reward", ORANGE, "P", ":"),
    "mixed": Look("mixed difficulty", GREY, "X", ":"),
    "sequence-tabular": Look("sequences, tabular", BLACK, "h", "--"),
    "sequence-shared": Look("sequences, shared features", PURPLE, "*", "--"),
}

RATIOS = {
    "none": Look("no ratio", ORANGE, "s", ":"),
    "token": Look("token ratio (GRPO)", BLUE, "D", "--"),
    "geometric": Look("geometric mean (GSPO)", GREEN, "^", "-."),
    "trajectory": Look("trajectory ratio (TIC)", BLACK, "o", "-"),
    "token, clipped": Look("token ratio, clipped by sign", VERMILION, "X", "--"),
    "trajectory, clipped": Look("trajectory ratio, clipped above", PURPLE, "P", "-"),
}
"""Importance ratios off policy, clipped and not."""
DRIFT_TICKS = (0.03, 0.1, 0.3, 1.0)
"""Where axes of how far the policy has moved have ticks."""

CONSTANTS = {
    "c1": Look("$c_1$", ORANGE, "s", "--"),
    "c2": Look("$c_2$", BLUE, "D", "-."),
    "c3": Look("$c_3$", GREEN, "^", ":"),
}
"""The constants of the error law: between prompts, the oracle's, the estimated baseline's."""
PHASES = {"I": "#CFE3F1", "II": "#E4E4E4", "III": "#F6DCC8"}
"""Shades behind the phases of training."""

INTERVALS = (
    (BLUE, "D", "--"),
    (VERMILION, "X", "-."),
    (BLACK, "o", "-"),
    (GREEN, "^", "-"),
    (ORANGE, "s", ":"),
    (PURPLE, "v", "--"),
    (BROWN, ">", ":"),
    (SKY, "P", "-."),
)
"""Colours, markers and lines of interval functions, in the order in which a table names them."""

METHODS = {
    "value_naive": "all responses independent",
    "value_clustered": "prompts independent",
    "value_effective": "effective sample size",
    "gradient_jackknife": "jackknife within prompts",
    "gradient_between": "variance between prompts",
    "gradient_ellipsoid": "joint ellipsoid",
    "components_jackknife": "jackknife over prompts",
    "components_bootstrap": "bootstrap over prompts",
    "mse_jackknife": "jackknife over prompts",
    "mse_bootstrap": "bootstrap over prompts",
    "group_size_jackknife": "jackknife over prompts",
    "group_size_fieller": "Fieller's method",
    "group_size_bootstrap": "bootstrap over prompts",
}
"""What interval functions do, in words for legends; of one target each has words of its own."""

TRAINING = {
    "kl-tabular": "tabular, KL penalty",
    "kl-linear": "linear features, KL penalty",
    "conflict": "linear features, conflict",
    "single": "one prompt",
    "kl-sequence": "sequences, KL penalty",
}
"""Titles of training problems."""

LANGUAGE_MODEL = ("lm-zero-shot", "lm-few-shot", "lm-instruct")


def apply() -> None:
    """Set the style; call once before drawing."""
    import seaborn as sns  # here, because it loads scipy.stats, which takes longer than all else that a report needs

    sns.set_theme(
        context="paper",
        style="ticks",
        font_scale=1.05,
        rc={
            "axes.grid": True,
            "grid.color": "#E3E3E3",
            "grid.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "legend.frameon": False,
            "lines.linewidth": 1.5,
            "lines.markersize": 4.5,
            "figure.constrained_layout.use": True,
            "savefig.dpi": 200,
            "svg.hashsalt": "grpo_theory",
            "svg.fonttype": "path",
            "font.family": "DejaVu Sans",
        },
    )
    mpl.rcParams["mathtext.fontset"] = "dejavusans"


def intervals(table: pd.DataFrame) -> dict[str, Look]:
    """Give each interval function of a table a look of its own, with its method in words."""
    names = map(str, table["interval"].unique())
    return {name: Look(METHODS.get(name, name), *look) for name, look in zip(names, cycle(INTERVALS), strict=False)}


def log_axis(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def coverage_axis(axis: Axis, ticks: Sequence[float] = COVERAGES) -> None:
    """Make an axis one of coverage, spaced by the logit, so that 90, 95 and 99% are told apart.

    It is cut at 2% and 99.9%; values beyond are drawn there.
    """
    low, high = COVERAGES[0], COVERAGES[-1]

    def forward(share: ArrayLike) -> ArrayLike:
        return logit(np.clip(share, low, high))

    rescale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
    rescale("function", functions=(forward, expit))
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def group_size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Make the horizontal axis the group size, on a log scale with the sizes as ticks."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(size) for size in sizes]))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("group size $G$")


def exact_line(axes: Axes, x: ArrayLike, prediction: ArrayLike, look: Look) -> None:
    """Draw an exact prediction, with the marker of its simulation in the legend."""
    axes.plot(as_array("x", x), as_array("prediction", prediction), look.line, color=look.colour)
    axes.plot([], [], look.line, color=look.colour, marker=look.marker, markerfacecolor="white", label=look.label)


def points(axes: Axes, x: ArrayLike, estimate: ArrayLike, standard_error: ArrayLike, look: Look) -> None:
    """Draw simulated estimates with their 95% intervals."""
    axes.errorbar(
        as_array("x", x),
        as_array("estimate", estimate),
        yerr=NORMAL_95 * as_array("standard_error", standard_error),
        fmt=look.marker,
        color=look.colour,
        markerfacecolor="white",
        markeredgewidth=1.1,
        elinewidth=1.1,
        capsize=2.5,
        linestyle="none",
        zorder=3,
    )


def size_colours(sizes: Sequence[int]) -> dict[int, str]:
    """Return a colour for each group size, the lighter the larger, in whatever figure."""
    places = np.linspace(0.0, 0.88, len(sizes))
    return {size: mpl.colors.to_hex(mpl.colormaps["viridis"](place)) for size, place in zip(sizes, places, strict=True)}


def checkpoint_colours(count: int) -> list[str]:
    """Return colours for the checkpoints of a training run, from early to late, that also differ in lightness."""
    import seaborn as sns  # here, as above

    return sns.color_palette("viridis_r", count + 1).as_hex()[1:]
