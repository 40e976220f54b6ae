"""The lines of a zip plot: one per interval, with an arrowhead where the frame cuts it."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_intervals(axes: "Axes", rows: pd.DataFrame, frame: tuple[float, float], linewidth: float = 1.0) -> None:
    """Draw intervals as horizontal lines at their percentiles; light blue if they cover, else orange.

    An interval that is longer than the frame ends at it in an arrowhead, so that no limit seems to lie where the frame does.

    Parameters
    ----------
    axes : Axes
        Its limits are set to the frame, and to 0 and 100.
    rows : DataFrame
        Columns low and high, less the truth, covered and percentile; one row per interval, without missing limits.
    frame : tuple of float
        The least and the greatest value that is shown.
    linewidth : float, default 1
        In points.
    """
    from matplotlib.collections import LineCollection

    from grpo_theory.page.style import SKY, VERMILION  # they differ in grey too, as the darker blue does less

    limits, heights = rows[["low", "high"]].to_numpy(dtype=float), rows["percentile"].to_numpy(dtype=float)
    colours = np.where(rows["covered"].to_numpy(dtype=bool), SKY, VERMILION)
    segments = np.stack([np.clip(limits, *frame), np.repeat(heights[:, None], 2, axis=1)], axis=-1)
    lines = LineCollection(list(segments), colors=list(colours), linewidths=linewidth, capstyle="projecting", rasterized=True)
    axes.add_collection(lines)
    for edge, marker, cut in ((frame[0], "<", limits[:, 0] < frame[0]), (frame[1], ">", limits[:, 1] > frame[1])):
        places = np.full(cut.sum(), edge)
        axes.scatter(places, heights[cut], s=20.0, c=list(colours[cut]), marker=marker, linewidths=0.0, clip_on=False, zorder=3)
    axes.set_xlim(*frame)
    axes.set_ylim(0.0, 100.0)
