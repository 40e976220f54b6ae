"""What a figure loses in print: text that is too small at the width of a page, and series that are alike in grey."""

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection, QuadMesh
from matplotlib.colors import to_hex, to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from overlaps import _is_data, _seen, _texts

PAGE, COLUMN = 7.0, 3.3
"""The width of a journal's page of two columns, and of a column, in inches: a figure of one panel stands in a column."""
SMALLEST = 5.0
"""Points below which journals refuse text."""
APART = 0.15
"""Of black to white, by which greys must differ: map makers hold that six or seven of them can be told apart, and not more."""
THICKER = 1.5
"""How many times as wide one of two lines must be, if nothing but their widths tells them apart."""


def print_faults(figure: Figure) -> list[str]:
    """Return what is lost in print: text below five points where a journal has the figure, and series alike in grey."""
    figure.draw_without_rendering()
    return _small(figure) + [fault for axes in _seen(figure) for fault in _alike(axes)]


def _small(figure: Figure):
    scale = min(1.0, _width(figure) / figure.get_figwidth())
    sizes = [(text.get_text(), scale * text.get_fontsize()) for text in _texts(figure)]
    return list(dict.fromkeys(f"{text!r} is printed with {size:.1f} points" for text, size in sizes if size < SMALLEST))


def _width(figure: Figure) -> float:
    """Return how wide a figure is printed; tables of colours are as wide as the page."""
    panels = _seen(figure)
    return COLUMN if len(panels) == 1 and not any(isinstance(one, QuadMesh) for one in panels[0].collections) else PAGE


def _alike(axes: Axes):
    """Find series of a panel that only their colour tells apart, where the colours are one grey.

    A series is all that has one colour: a line and the marks on it have the looks of both. What a colour map paints is
    left out: its colours are values, and neighbours on the map are meant to be alike.
    """
    found = []
    kind = _lines(axes) + _marks(axes)
    series = {colour: {look for other, look in kind if other == colour} for colour, _ in kind}
    for one, other in combinations(series, 2):
        if _same(series[one], series[other]) and abs(grey(one) - grey(other)) < APART:
            found.append(f"{one[:7]} and {other[:7]} of {axes.get_title()!r} are alike in grey")
    return found


def _same(ones, others) -> bool:
    """Tell whether two series look the same: whether each look of either has its like in the other."""
    return all(any(_match(a, b) for b in others) for a in ones) and all(any(_match(a, b) for a in ones) for b in others)


def _match(one, other) -> bool:
    """Compare two looks, each a width and all else."""
    low, high = sorted((one[0], other[0]))
    return one[1:] == other[1:] and high < THICKER * low if low else one == other


def grey(colour: str) -> float:
    """Return how light a colour is on paper, from 0 to 1, as a printer without colours takes it."""
    red, green, blue, alpha = to_rgba(colour)
    return 1.0 - alpha * (1.0 - (0.299 * red + 0.587 * green + 0.114 * blue))


def _hex(colour, alpha: float | None) -> str:
    red, green, blue, own = to_rgba(colour)
    return to_hex((red, green, blue, own if alpha is None else alpha), keep_alpha=True)


def _shape(path) -> bytes:
    """Return a marker's outline, which is the same for a line's marks and for a scatter's."""
    return np.round(path.vertices, 3).tobytes()


def _lines(axes: Axes):
    """Return the colour and the look of each line.

    The look is the width, the dashes, the outline of the marks, and whether they are filled.
    """
    bars = {id(line) for one in axes.containers if isinstance(one, ErrorbarContainer) for line in one.lines[1]}
    found = []
    for line in axes.lines:
        if id(line) in bars or not _is_data(axes, line) or not isinstance(line, Line2D):
            continue
        drawn = line.get_linestyle() not in ("None", "", " ")
        colour = _hex(line.get_color() if drawn else line.get_markeredgecolor(), line.get_alpha())
        if to_rgba(colour)[3] == 0.0:
            continue
        outline, filled = b"", False
        if str(line.get_marker()) not in ("None", "", " "):
            mark = MarkerStyle(line.get_marker())
            outline = _shape(mark.get_path().transformed(mark.get_transform()))
            filled = _hex(line.get_markerfacecolor(), None) == _hex(line.get_color(), None)
        width = line.get_linewidth() if drawn else 0.0
        found.append((colour, (width, str(line._unscaled_dash_pattern) if drawn else "no line", outline, filled)))
    return found


def _painted(axes: Axes, kind: type[Collection]):
    """Return collections that hold something and have colours of their own, not those of a colour map."""
    return [one for one in axes.collections if isinstance(one, kind) and one.get_array() is None and one.get_visible()]


def _marks(axes: Axes):
    """Return the colour and the look of each kind of point of a scatter; what is white inside has the colour of its edge.

    Sizes are left out: they are often values.
    """
    found = []
    for one in _painted(axes, PathCollection):
        paths = one.get_paths()
        faces = [face for face in one.get_facecolor() if face[3] > 0.0 and tuple(face[:3]) != (1.0, 1.0, 1.0)]
        if len(one.get_offsets()) and len(paths) == 1:
            colours = {_hex(colour, None) for colour in (faces or one.get_edgecolor())}
            found += [(colour, (0.0, "no line", _shape(paths[0]), bool(faces))) for colour in sorted(colours)]
    return found
