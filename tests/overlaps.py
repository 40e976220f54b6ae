"""What is wrong with a figure at a glance, found from the boxes of what it draws."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import AxLine, Line2D
from matplotlib.transforms import Bbox

SLACK = 1.0
"""Points by which boxes of text may touch: they are somewhat larger than the letters."""


def faults(figure):
    """Return what is wrong: legends beyond the edge, panels without data, text on text, legends on data."""
    figure.draw_without_rendering()
    found = _cut_off(figure)
    for axes in _seen(figure):
        if not any(_is_data(axes, one) for one in _drawn(axes)):
            found.append(f"the panel {axes.get_title()!r} is empty")
        found += _covered(axes)
    return found + _text_on_text(figure)


def _seen(figure: Figure):
    return [axes for axes in figure.axes if axes.get_visible() and axes.axison]


def _legends(figure: Figure):
    return [*figure.legends, *(legend for axes in figure.axes if axes.get_visible() and (legend := axes.get_legend()))]


def _cut_off(figure: Figure):
    found = ["a legend is cut off" for legend in _legends(figure) if _leaves(figure, legend)]
    return found + [f"the text {text.get_text()!r} is cut off" for text in _texts(figure) if _leaves(figure, text)]


def _leaves(figure: Figure, one):
    """Tell whether what is drawn leaves the canvas by more than a pixel."""
    box, whole = one.get_window_extent(), figure.bbox
    return box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < whole.y0 - 1 or box.y1 > whole.y1 + 1


def _drawn(axes: Axes):
    return [*axes.lines, *axes.collections, *axes.patches, *axes.texts, *axes.images, *axes.child_axes]


def _is_data(axes: Axes, one):
    """Tell what is drawn from data from guides: a line or band across the whole panel is one, and so is what holds nothing."""
    if isinstance(one, AxLine):
        return False
    if isinstance(one, Line2D):
        return len(one.get_xdata()) > 0 and one.get_transform() is axes.transData
    if isinstance(one, mpl.patches.Patch):
        # By identity: on axes from 0 to 1 the transforms have equal matrices.
        across = (axes.get_xaxis_transform(which="grid"), axes.get_yaxis_transform(which="grid"))
        return not any(one.get_data_transform() is transform for transform in across)
    return True


def _tick_labels(axis):
    """Return the labels of an axis that are drawn, of ticks within its limits."""
    low, high = sorted(axis.get_transform().transform(axis.get_view_interval()))
    room = 1e-6 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()] if axis.get_visible() else []
    places = axis.get_transform().transform(np.array([tick.get_loc() for tick in ticks], dtype=float))
    return [
        label
        for tick, place in zip(ticks, places, strict=True)
        if low - room <= place <= high + room
        for label in (tick.label1, tick.label2)
        if label.get_visible() and label.get_text().strip()
    ]


def _texts(figure: Figure):
    """Return all text that is drawn outside legends."""
    texts = [*figure.texts, figure._suptitle, figure._supxlabel, figure._supylabel]
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        texts += [*axes.texts]
        if axes.axison:
            texts += [axes.title, axes._left_title, axes._right_title, axes.xaxis.label, axes.yaxis.label]
            texts += [*_tick_labels(axes.xaxis), *_tick_labels(axes.yaxis)]
        for child in axes.child_axes:
            texts += [*_tick_labels(child.xaxis), child.xaxis.label, child.title]
    texts += [text for legend in _legends(figure) for text in (*legend.get_texts(), legend.get_title())]
    drawn = [text for text in texts if text is not None and text.get_visible() and text.get_text().strip()]
    return list({id(text): text for text in drawn}.values())


def _text_on_text(figure: Figure):
    """Find text on text; that which leans is left out, because its box is much larger than the letters."""
    boxes = [(text, text.get_window_extent()) for text in _texts(figure) if text.get_rotation() % 90.0 == 0.0]
    slack = SLACK * figure.dpi / 72.0
    return [
        f"{one.get_text()!r} lies on {other.get_text()!r}"
        for (one, a), (other, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack
    ]


def _covered(axes: Axes):
    """Find data that a legend of the panel lies on: points of its markers and lines, and corners of its bars."""
    legend = axes.get_legend()
    if legend is None:
        return []
    box = legend.get_window_extent()
    if any(_touches(box, axes, one) for one in _drawn(axes) if _is_data(axes, one)):
        return [f"the legend of {axes.get_title()!r} lies on data"]
    return []


def _touches(box: Bbox, axes: Axes, one):
    if isinstance(one, Line2D):
        return _path_touches(box, axes, one.get_xydata(), joined=one.get_linestyle() not in ("None", "", " "))
    if isinstance(one, PathCollection):
        return _path_touches(box, axes, np.asarray(one.get_offsets()), joined=False)
    if isinstance(one, LineCollection):
        return any(_path_touches(box, axes, np.asarray(segment), joined=True) for segment in one.get_segments())
    if isinstance(one, mpl.patches.Rectangle):
        return bool(box.overlaps(one.get_window_extent()))
    return False


def _path_touches(box: Bbox, axes: Axes, points, joined: bool):
    """Tell whether points in the frame, or the line through them, lie in a box."""
    places = axes.transData.transform(np.ma.filled(np.ma.asarray(points, dtype=float), np.nan))
    if joined and len(places) > 1:
        steps = np.linspace(0.0, 1.0, 50)[:, None, None]
        places = (places[:-1] + steps * (places[1:] - places[:-1])).reshape(-1, 2)
    places = places[np.isfinite(places).all(axis=1)]
    seen = [axes.bbox.contains(x, y) and box.contains(x, y) for x, y in places]
    return any(seen)
