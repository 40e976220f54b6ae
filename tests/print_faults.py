"""What a figure loses in print: text that is too small at the width of a page, and series that are alike in grey."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex, to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from overlaps import _is_data, _seen, _texts

PAGE, COLUMN = 7.0, 3.3
"""The width of a journal's page of two columns, and of a column, in inches: a figure of one panel stands in a column."""
SMALLEST = 5.0
"""Points below which journals refuse text."""
APART = 0.15
"""Of black to white, by which greys must differ: map makers hold that six or seven of them can be told apart, and not more."""


def print_faults(figure: Figure) -> list[str]:
    """Return what is lost in print: text below five points where a journal has the figure, and series alike in grey."""
    figure.draw_without_rendering()
    return _small(figure) + [fault for axes in _seen(figure) for fault in _alike(axes)]


def _small(figure: Figure):
    scale = min(1.0, _width(figure) / figure.get_figwidth())
    sizes = {text.get_text(): scale * text.get_fontsize() for text in _texts(figure)}
    return [f"{text!r} is printed with {size:.1f} points" for text, size in sizes.items() if size < SMALLEST]


def _width(figure: Figure) -> float:
    """Return how wide a figure is printed; tables of colours are as wide as the page."""
    panels = _seen(figure)
    return COLUMN if len(panels) == 1 and not any(isinstance(one, QuadMesh) for one in panels[0].collections) else PAGE


def _alike(axes: Axes):
    """Find series of a panel that only their colour tells apart, where the colours are one grey.

    A series is all that has one colour: a line and the marks on it have the looks of both.
    """
    found = []
    for kind in (_lines(axes), _bars(axes), _bands(axes)):
        series = {colour: {look for other, look in kind if other == colour} for colour, _ in kind}
        for one, other in combinations(series, 2):
            if series[one] == series[other] and abs(grey(one) - grey(other)) < APART:
                found.append(f"{one[:7]} and {other[:7]} of {axes.get_title()!r} are alike in grey")
    return found


def grey(colour: str) -> float:
    """Return how light a colour is on paper, from 0 to 1, as a printer without colours takes it."""
    red, green, blue, alpha = to_rgba(colour)
    return 1.0 - alpha * (1.0 - (0.299 * red + 0.587 * green + 0.114 * blue))


def _hex(colour, alpha: float | None) -> str:
    red, green, blue, own = to_rgba(colour)
    return to_hex((red, green, blue, own if alpha is None else alpha), keep_alpha=True)


def _lines(axes: Axes):
    """Return the colour and the other looks of each line: dashes, width, marker, and whether that is filled."""
    bars = {id(line) for one in axes.containers if isinstance(one, ErrorbarContainer) for line in one.lines[1]}
    found = []
    for line in axes.lines:
        if id(line) in bars or not _is_data(axes, line) or not isinstance(line, Line2D):
            continue
        dashes = line._unscaled_dash_pattern if line.get_linestyle() not in ("None", "", " ") else "no line"
        marker = str(line.get_marker())
        filled = marker not in ("None", "", " ") and _hex(line.get_markerfacecolor(), None) == _hex(line.get_color(), None)
        colour = line.get_color() if dashes != "no line" else line.get_markeredgecolor()
        if to_rgba(colour)[3] > 0.0:
            found.append((_hex(colour, line.get_alpha()), (str(dashes), round(line.get_linewidth(), 1), marker, filled)))
    return found


def _bars(axes: Axes):
    found = [(one[0], "bars") for one in axes.containers if isinstance(one, BarContainer) and len(one)]
    return [(_hex(bar.get_facecolor(), None), (kind, bar.get_hatch() or "")) for bar, kind in found]


def _bands(axes: Axes):
    """Return the colour and the hatch of each band across the panel."""
    bands = [one for one in axes.patches if isinstance(one, mpl.patches.Patch) and not _is_data(axes, one)]
    seen = [band for band in bands if np.any(band.get_facecolor())]
    return [(_hex(band.get_facecolor(), None), ("band", band.get_hatch() or "")) for band in seen]
