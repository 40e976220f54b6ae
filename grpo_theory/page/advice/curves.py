"""The curves of an advice as SVG: the error and the share of uniform groups against the group size."""

import io
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from grpo_theory.plan.advice import Advice

BLUE, VERMILION, GREEN = "#3B8EC8", "#E0662B", "#2BA57F"
"""Colours that can be told apart by all, on white and on black."""
INK = "#010203"
"""Stands for the colour of the text, whatever that is where the page is shown."""
STYLE: Any = {
    "svg.hashsalt": "grpo_theory",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 12.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
}
LARGEST_SHOWN = 1.0
"""Where the error is more than so far above the least, the curve is cut: 1 is twice the error."""

STRIP = 0.045
"""How high the strip of sizes that may be best is, as a share of the axis: below the curve, whose limits it would hide."""


def curves(advice: Advice) -> list[str]:
    """Return the figures as SVG elements; text and axes have the colour of the text around them."""
    with mpl.rc_context(STYLE):
        figures = [_shares(advice)] if advice.scores is None else [_errors(advice), _shares(advice)]
        return [_svg(figure) for figure in figures]


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :].replace(INK.lower(), "currentColor")


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 3.9), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.grid(color="#808080", alpha=0.25, linewidth=0.6)
    return figure, axes


def _group_axis(axes: Axes, low: int, high: int) -> None:
    axes.set_xscale("log", base=2)
    powers = 2.0 ** np.arange(1, 13)
    axes.xaxis.set_major_locator(FixedLocator(powers[(powers >= low) & (powers <= high)].tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(low / 1.08, high * 1.08)
    axes.set_xlabel("group size: responses per prompt")


def _percent(value: float, _: int) -> str:
    return f"{100.0 * value:.0f}%"


def _last_shown(advice: Advice) -> int:
    """Return the largest group size of the figures."""
    sizes = advice.rewards.uniform.group_sizes
    if advice.scores is None:
        return int(sizes[-1])
    choice = advice.scores.choice
    wanted = max(64, 2 * choice.group_size, advice.group_size or 0, choice.high if choice.bounded else 0)
    return int(choice.group_sizes[choice.group_sizes <= wanted][-1])


def _errors(advice: Advice) -> Figure:
    figure, axes = _axes()
    draw_errors(axes, advice)
    figure.legend(loc="outside upper left", ncols=2, fontsize=11)
    return figure


def draw_errors(axes: Axes, advice: Advice) -> None:
    """Draw the loss of each group size, with its limits, what may be best, what is recommended and what is the user's."""
    assert advice.scores is not None
    choice, last = advice.scores.choice, _last_shown(advice)
    what, against = (
        ("error", "error above the least") if advice.scores.own is None else ("loss", "best efficiency above this one")
    )
    shown = choice.group_sizes <= last
    sizes = choice.group_sizes[shown].astype(np.float64)
    compared = advice.group_size if advice.group_size in choice.group_sizes else None
    top = max(LARGEST_SHOWN, 1.5 * float(choice.loss.estimate[choice.at(compared)]) if compared else 0.0)
    high = np.minimum(choice.loss.high[shown], 100.0)
    axes.fill_between(sizes, choice.loss.low[shown], high, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(sizes, choice.loss.estimate[shown], color=BLUE, linewidth=1.8, label=f"{what}, {100.0 * advice.level:g}% limits")
    for i, (first, end) in enumerate(run for run in choice.runs if run[0] <= last):
        label = "" if i else "may be the best size"
        axes.axvspan(first - 0.5, min(end, last) + 0.5, ymax=STRIP, color=GREEN, alpha=0.6, linewidth=0, label=label)
    axes.plot(
        choice.group_size, 0.0, "o", color=GREEN, markersize=8, clip_on=False, label=f"recommended: {choice.group_size}", zorder=5
    )
    if compared is not None and compared != choice.group_size:
        loss = choice.loss.estimate[choice.at(compared)]
        axes.plot(compared, loss, "X", color=VERMILION, markersize=8, label=f"yours: {compared}", zorder=5)
    axes.set_ylim(-1.3 * STRIP * top, top)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_ylabel(against)
    _group_axis(axes, int(sizes[0]), last)


def _shares(advice: Advice) -> Figure:
    shares = advice.rewards.uniform
    shown = shares.group_sizes <= _last_shown(advice)
    sizes = shares.group_sizes[shown].astype(np.float64)
    estimate, low, high = (part[shown] for part in (shares.interval.estimate, shares.interval.low, shares.interval.high))
    figure, axes = _axes()
    axes.fill_between(sizes, low, high, color=VERMILION, alpha=0.2, linewidth=0)
    axes.plot(sizes, estimate, color=VERMILION, linewidth=1.2)
    measured = shares.measured[shown] == 1.0
    axes.plot(sizes[measured], estimate[measured], "o", color=VERMILION, label="measured")
    if not measured.all():
        axes.plot(
            sizes[~measured],
            estimate[~measured],
            "o",
            color=VERMILION,
            markerfacecolor="none",
            label="predicted",
        )
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_ylabel("groups with equal rewards")
    _group_axis(axes, int(sizes[0]), int(sizes[-1]))
    figure.legend(loc="outside upper left", ncols=2, fontsize=11)
    return figure
