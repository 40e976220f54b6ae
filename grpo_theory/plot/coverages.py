"""Coverage of intervals: the zip plot of one, its lines and their order, and width against coverage of several."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from grpo_theory.laboratory import Coverage
from grpo_theory.plot.axes import given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def zip_plot(coverage: Coverage, *, component: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Draw every interval less the truth, ranked by where the truth lies in it (Morris, White and Crowther 2019).

    Intervals with the truth far inside are at the foot, and those far from it on top. Where intervals are an estimate and a fixed
    number of standard errors on either side, this ranks the distances in their own standard errors. Pairs (low, high) are enough.
    Blue intervals cover, orange ones do not; the dashed line is where the colours meet if coverage is nominal. An arrowhead at
    the frame marks an interval that is longer than the frame.

    Parameters
    ----------
    coverage : Coverage
        Of one level.
    component : str, optional
        As in `Coverage.to_frame`; needed only if there are several.
    axes : Axes, optional
        New ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are several levels, or the component is unknown.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("two-arms"), gt.Pilot(batch_size=16, group_size=4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> record = gt.coverage(gt.intervals.value_clustered, problem, truth, experiment=pilot, replications=100, rng=0)
    >>> gt.plot.zip_plot(record).get_ylabel()
    'percentile'
    """
    if not isinstance(coverage, Coverage):
        raise TypeError(f"coverage must be what gt.coverage returns, got {type(coverage).__name__}")
    intervals = coverage.to_frame()
    if intervals["level"].nunique() > 1:
        raise ValueError(f"coverage must be of one level to be drawn, got levels {coverage.level}")
    components = list(dict.fromkeys(intervals["component"]))
    if component is None and len(components) > 1:
        raise ValueError(f"component must be one of {', '.join(components)}: there are several, and none is named")
    if component is not None and component not in components:
        raise ValueError(f"component must be one of {', '.join(map(repr, components))}, got {component!r}")
    shown = components[0] if component is None else component
    truth = float(np.ravel(coverage.truth)[components.index(shown)])
    own = intervals[intervals["component"] == shown].assign(
        low=lambda rows: rows["low"] - truth, high=lambda rows: rows["high"] - truth
    )
    own = ranked(own).dropna(subset=["low", "high"])
    limits = own[["low", "high"]].to_numpy()
    edge = 1.05 * float(np.quantile(np.abs(limits[np.isfinite(limits)]), 0.99))  # infinite ones reach the frame
    axes = given_or_new(axes)
    draw_intervals(axes, own, (-edge, edge), min(1.0, 150.0 / len(own)))
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.axhline(100.0 * float(intervals["level"].iloc[0]), color="grey", linestyle="--", linewidth=0.9)
    axes.set(xlabel="limits less the truth", ylabel="percentile")
    axes.set_title(f"{np.mean(own['covered']):.1%} of {len(own)} intervals cover (blue)", fontsize="medium")
    return axes


def width_by_coverage(records: Mapping[str, Coverage], axes: "Axes | None" = None) -> "Axes":
    """Draw the median width of intervals against their coverage, with its 95% limits: one mark per interval function.

    Parameters
    ----------
    records : mapping of str to Coverage
        By the name to be shown, as `gt.laboratory.coverage_of_several` returns them; of scalar truths, at one level each.
    axes : Axes, optional
        New ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no record, or one has several levels or components.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> functions = {"naive": gt.intervals.value_naive, "clustered": gt.intervals.value_clustered}
    >>> asked = {"experiment": pilot, "replications": 500, "rng": 0}
    >>> records = gt.laboratory.coverage_of_several(functions, problem, gt.objective(problem, problem.theta), **asked)
    >>> gt.plot.width_by_coverage(records).get_xlabel()
    'coverage, with 95% limits'
    """
    if not isinstance(records, Mapping) or not all(isinstance(one, Coverage) for one in records.values()):
        raise TypeError(f"records must be a mapping of names to what gt.coverage returns, got {type(records).__name__}")
    if not records:
        raise ValueError("records must have at least one, got none")
    for name, one in records.items():
        if isinstance(one.level, tuple) or np.size(one.coverage) != 1:
            raise ValueError(f"records must be of one level and a scalar truth each, {name!r} is not")
    axes = given_or_new(axes)
    for (name, one), marker in zip(records.items(), MARKERS * len(records), strict=False):
        row = one.measures().set_index("measure").loc["coverage"]
        width = float(np.nanmedian(one.width))
        ends = [[max(row["estimate"] - row["low"], 0.0)], [max(row["high"] - row["estimate"], 0.0)]]
        axes.errorbar([row["estimate"]], [width], xerr=ends, fmt=marker, label=name, capsize=3.0)
    levels = {float(one.level) for one in records.values() if not isinstance(one.level, tuple)}
    for level in levels:
        axes.axvline(level, color="grey", linestyle="--", linewidth=0.9)
    tallest = max(float(np.nanmedian(one.width)) for one in records.values())
    axes.set(xlabel="coverage, with 95% limits", ylabel="median width", ylim=(0.0, 1.3 * tallest))
    axes.legend(loc="upper left")
    return axes


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


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """Return intervals less the truth in the order of where it lies, from far inside to far outside, with new percentiles.

    Only limits are needed, so that intervals without an estimate are ranked too. Intervals that are symmetric about an estimate
    are in the order of its distance from the truth in standard errors. Those that do not give an answer are last.

    Parameters
    ----------
    rows : DataFrame
        Columns low and high, less the truth, and covered; one row per interval.

    Returns
    -------
    DataFrame
        The same rows with a column percentile, 100 r / R for rank r of R.
    """
    low, high = (rows[name].to_numpy(dtype=float) for name in ("low", "high"))
    covered = rows["covered"].to_numpy(dtype=bool)
    outside = np.maximum(low, -high)
    with np.errstate(invalid="ignore", divide="ignore"):
        widths_outside = np.nan_to_num(outside / (high - low), nan=0.0)
    order = np.lexsort((outside, widths_outside, ~covered, np.isnan(low)))
    return rows.iloc[order].assign(percentile=100.0 * np.arange(1, len(rows) + 1) / len(rows))


MARKERS = ("o", "s", "D", "^", "v", "X", "P")
