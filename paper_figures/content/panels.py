"""What several figures draw alike: curves and marks, axes and ticks, rows, cells, and what stands below."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Formatter, FuncFormatter, LogLocator, NullLocator
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from seaborn.utils import relative_luminance

from grpo_theory.page.style import (
    BLACK,
    BLUE,
    BROWN,
    CONSTANTS,
    GREEN,
    METHODS,
    NORMAL_95,
    ORANGE,
    PROBLEMS,
    PURPLE,
    SKY,
    TRAINING,
    VERMILION,
    Look,
)
from grpo_theory.validation import Array

Tables = Mapping[str, pd.DataFrame]
"""The tables of studies by name, which a figure is drawn from."""
WORDS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("titles.toml").read_text(encoding="utf-8"))
"""Titles and names that a figure prints, by the figure."""
PERCENT = FuncFormatter(lambda share, _: f"{100.0 * share:g}%")
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
COVERAGES = (0.02, 0.1, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.999)
"""Ticks of an axis of coverages; those beyond the first and last are drawn there."""
MIDDLE = 0.179
"""The luminance against which black and white have the same contrast, 4.6, by the web's guidelines (WCAG 2)."""


def curve(axes: Axes, x: ArrayLike, y: ArrayLike, look: Look, **style: Any) -> Line2D:
    """Draw a line with hollow marks, which the legend names; points without x and y are for the legend alone."""
    looks = {"color": look.colour, "marker": look.marker, "markerfacecolor": "white", "label": look.label}
    return axes.plot(x, y, look.line, **looks | style)[0]


def marks(axes: Axes, x: ArrayLike, y: ArrayLike, look: Look, **style: Any) -> ErrorbarContainer:
    """Draw hollow marks with error bars, which are given as `xerr` or `yerr`."""
    return axes.errorbar(x, y, **{"fmt": look.marker, "color": look.colour, "markerfacecolor": "white"} | style)


def points(axes: Axes, x: ArrayLike, estimate: ArrayLike, standard_error: ArrayLike, look: Look) -> None:
    """Draw simulated estimates with their 95% intervals."""
    half = NORMAL_95 * np.asarray(standard_error)
    style = {"markeredgewidth": 1.1, "elinewidth": 1.1, "capsize": 2.5, "linestyle": "none", "zorder": 3}
    marks(axes, np.asarray(x), np.asarray(estimate), look, yerr=half, **style)


def exact_line(axes: Axes, x: ArrayLike, prediction: ArrayLike, look: Look) -> None:
    """Draw an exact prediction, with the marker of its simulation in the legend."""
    axes.plot(np.asarray(x), np.asarray(prediction), look.line, color=look.colour)
    curve(axes, [], [], look)


def lengths(rows: pd.DataFrame) -> Array:
    """Return the lengths of error bars to both sides of the estimates, shape (2, R)."""
    return np.stack([rows["estimate"] - rows["low"], rows["high"] - rows["estimate"]])


def ticks(axis: Axis, places: Iterable[float], form: str | Formatter = "{x:g}") -> None:
    """Give an axis ticks at these places, and no others."""
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())


def log_axis(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def coverage_axis(axis: Axis, places: Sequence[float] = COVERAGES) -> None:
    """Make an axis one of coverage, spaced by the logit, so that 90, 95 and 99% are told apart.

    It is cut at 2% and 99.9%; values beyond are drawn there.
    """

    def forward(share: ArrayLike) -> ArrayLike:
        return logit(np.clip(share, COVERAGES[0], COVERAGES[-1]))

    rescale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
    rescale("function", functions=(forward, expit))
    ticks(axis, places)


def group_size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Make the horizontal axis the group size, on a log scale with the sizes as ticks."""
    axes.set_xscale("log", base=2)
    ticks(axes.xaxis, sizes)
    axes.set_xlabel("group size $G$")


def line_between_rows(axes: Axes, count: int) -> None:
    """Part the rows of a panel, at 0 to count - 1, by thin lines in place of the grid's."""
    axes.grid(axis="y", visible=False)
    for border in np.arange(count - 1) + 0.5:
        axes.axhline(border, color="#E3E3E3", linewidth=0.6)


def intervals(table: pd.DataFrame) -> dict[str, Look]:
    """Give each interval function of a table a look of its own, with its method in words."""
    names = map(str, table["interval"].unique())
    return {name: Look(METHODS.get(name, name), *look) for name, look in zip(names, cycle(INTERVALS), strict=False)}


def title_of(problem: str) -> str:
    """Return the words for a problem of the gallery, or for one of training; its name where it has none."""
    return PROBLEMS[problem].label if problem in PROBLEMS else TRAINING.get(problem, problem)


def symbol(target: str) -> str:
    """Return the name of a target for a figure: constants of the error law as symbols, the others as they are."""
    return CONSTANTS[target].label if target in CONSTANTS else target


def size_colours(sizes: Sequence[int]) -> dict[int, str]:
    """Return a colour for each group size, the lighter the larger, in whatever figure."""
    places = np.linspace(0.0, 0.88, len(sizes))
    return {size: mpl.colors.to_hex(mpl.colormaps["viridis"](place)) for size, place in zip(sizes, places, strict=True)}


def heat_map(axes: Axes, values: pd.DataFrame, text: pd.DataFrame, colours: str, span: tuple[float, float], **bar: Any) -> None:
    """Draw a heat map with a text in each cell. Seaborn is told `bar` of the bar of colours, which is left out without it."""
    shades = sns.color_palette(f"blend:{colours}", as_cmap=True) if "#" in colours else colours
    bar = bar or {"cbar": False}
    sns.heatmap(values, annot=text, fmt="", vmin=span[0], vmax=span[1], cmap=shades, linewidths=1.5, ax=axes, **bar)
    make_readable(axes)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=0)


def make_readable(axes: Axes) -> None:
    """Make each number of a heat map black or white, whichever has the more contrast with its cell."""
    mesh = next(one for one in axes.collections if isinstance(one, mpl.collections.QuadMesh))
    mesh.update_scalarmappable()
    for number, colour in zip(axes.texts, np.asarray(mesh.get_facecolor()), strict=True):
        number.set_color("black" if relative_luminance(colour) > MIDDLE else "white")


def legend_below(figure: Figure, panels: Iterable[Axes], **style: Any) -> None:
    """Name below a figure what its panels name, each name once."""
    named = {label: one for axes in panels for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside lower center", **style)
