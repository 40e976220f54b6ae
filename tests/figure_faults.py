"""What is wrong with a figure at a glance or in print: cut off, empty, too small, legends on data, series alike in grey."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex, to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import AxLine, Line2D

PAGE, COLUMN = 7.0, 3.3
"""The width of a journal's page of two columns, and of a column, in inches: a figure of one panel stands in a column."""
SMALLEST = 5.0
"""Points below which journals refuse text."""
APART = 0.15
"""Of black to white, by which greys must differ: map makers hold that six or seven of them can be told apart, and not more."""


def faults(figure):
    """Return what is wrong with a figure, in words."""
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible() and axes.axison]
    legends = [*figure.legends, *(legend for axes in figure.axes if axes.get_visible() and (legend := axes.get_legend()))]
    texts = [one for one in figure.findobj(mpl.text.Text) if one.get_visible() and one.get_text().strip()]
    # The label of a tick that lies outside the axis is not drawn.
    frames = {axes: axes.get_tightbbox() for axes in panels}
    texts = [
        one for one in texts if one.axes is None or (one.axes in panels and frames[one.axes].overlaps(one.get_window_extent()))
    ]
    whole = figure.bbox.padded(1.0)
    boxes = [legend.get_window_extent() for legend in legends]
    found = ["a legend is cut off" for box in boxes if not (whole.contains(*box.min) and whole.contains(*box.max))]
    table = any(isinstance(one, QuadMesh) for axes in panels for one in axes.collections)
    scale = min(1.0, (COLUMN if len(panels) == 1 and not table else PAGE) / figure.get_figwidth())
    small = {one.get_text(): scale * one.get_fontsize() for one in texts if scale * one.get_fontsize() < SMALLEST}
    found += [f"{text!r} is printed with {size:.1f} points" for text, size in small.items()]
    for axes in panels:
        drawn = [one for one in [*axes.lines, *axes.collections, *axes.patches, *axes.texts, *axes.images] if _is_data(axes, one)]
        if not drawn:
            found.append(f"the panel {axes.get_title()!r} is empty")
        legend = axes.get_legend()
        if legend and any(_touches(legend.get_window_extent(), axes, one) for one in drawn):
            found.append(f"the legend of {axes.get_title()!r} lies on data")
        found += _alike(axes)
    return found


def _is_data(axes, one):
    """Tell what is drawn from data from guides: a line or band across the whole panel is one, and so is what holds nothing."""
    if isinstance(one, Line2D):
        return not isinstance(one, AxLine) and len(one.get_xdata()) > 0 and one.get_transform() is axes.transData
    if isinstance(one, mpl.patches.Patch):
        across = (axes.get_xaxis_transform("grid"), axes.get_yaxis_transform("grid"))
        return not any(one.get_data_transform() is transform for transform in across)  # equal matrices are others
    return True


def _touches(box, axes, one):
    """Tell whether points in the frame, or the lines through them, lie in a box."""
    if isinstance(one, LineCollection):
        paths = [np.asarray(segment, dtype=float) for segment in one.get_segments()]
    elif isinstance(one, Line2D | PathCollection):
        paths = [np.asarray(one.get_xydata() if isinstance(one, Line2D) else one.get_offsets(), dtype=float)]
    else:
        return isinstance(one, mpl.patches.Rectangle) and bool(box.overlaps(one.get_window_extent()))
    joined = not isinstance(one, PathCollection) and getattr(one, "get_linestyle", str)() not in ("None", "", " ")
    for path in paths:
        places = axes.transData.transform(path)
        if joined and len(places) > 1:
            steps = np.linspace(0.0, 1.0, 50)[:, None, None]
            places = (places[:-1] + steps * (places[1:] - places[:-1])).reshape(-1, 2)
        if any(axes.bbox.contains(x, y) and box.contains(x, y) for x, y in places[np.isfinite(places).all(axis=1)]):
            return True
    return False


def grey(colour):
    """Return how light a colour is on paper, from 0 to 1, as a printer without colours takes it."""
    red, green, blue, alpha = to_rgba(colour)
    return 1.0 - alpha * (1.0 - (0.299 * red + 0.587 * green + 0.114 * blue))


def _alike(axes):
    """Find lines of a panel that only their colour tells apart, where the colours are one grey; marks on a line are its own."""
    bars = {id(line) for one in axes.containers if isinstance(one, ErrorbarContainer) for line in one.lines[1]}
    series = {}
    for line in axes.lines:
        if id(line) in bars or not _is_data(axes, line):
            continue
        colour, face = (to_hex(one, keep_alpha=True) for one in (line.get_color(), line.get_markerfacecolor()))
        drawn = line.get_linestyle() not in ("None", "", " ")
        filled = str(line.get_marker()) not in ("None", "", " ") and face == colour
        width = round(np.log(line.get_linewidth()) / np.log(1.5)) if drawn else 0  # a half more is seen
        look = (width, str(line._unscaled_dash_pattern) if drawn else "no line", str(line.get_marker()), filled)
        series.setdefault(colour, set()).add(look)
    return [
        f"{one[:7]} and {other[:7]} of {axes.get_title()!r} are alike in grey"
        for one, other in combinations(series, 2)
        if series[one] == series[other] and abs(grey(one) - grey(other)) < APART
    ]
