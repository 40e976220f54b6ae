"""The worst case of an inequality, sought over a family of problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import Array, as_count, as_generator, as_positive, as_real_array, check_shape

Sides = Callable[[Array], Sequence[float]]
ComparisonKind = Literal["ratio", "difference"]

ROUNDING = 1e-9
"""By how much, relative to the larger side, the left may be above the right and still count as equal."""
_SLOPE_STEP = 1e-6
"""The step of finite differences, in units of the box."""
_MOST = float(np.finfo(np.float64).max)
"""An infinite ratio has no slope; to a climb it is this."""


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Where an inequality left <= right came nearest to failing, or failed.

    A search that finds no violation proves nothing; one that finds a violation does, at `parameters`.

    Attributes
    ----------
    parameters : ndarray, shape (n,)
        The parameters of the worst problem found.
    left, right : float
        The two sides there.
    score : float
        What was maximised: left/right, or left - right.
    attained : bool
        Whether the sides are equal there up to the tolerance; false where the inequality is violated.
    violated : bool
        Whether the left side is above the right one, by more than rounding.
    evaluations : int
        How often the sides were computed.
    agreeing : int
        How many of the climbs ended within the tolerance of the worst score: one alone is a weak sign that it is the worst.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> found = gt.worst_case(lambda x: (x[0] ** 2, x[0]), [(0.0, 2.0)], compare="difference", starts=16, climbs=2, rng=0)
    >>> found.violated, float(found.parameters[0].round(3))
    (True, 2.0)
    """

    parameters: Array
    left: float
    right: float
    score: float
    attained: bool
    violated: bool
    evaluations: int
    agreeing: int


def worst_case(
    sides: Sides,
    bounds: ArrayLike,
    *,
    rng: Any = None,
    starts: int = 256,
    climbs: int = 8,
    compare: ComparisonKind = "ratio",
    tolerance: float = 1e-3,
) -> WorstCase:
    """Maximise the left side of an inequality over, or less, its right side, over a box of parameters.

    The sides are computed at random points of the box, in as many equal shares as there are climbs.  From the worst point of each
    share the search climbs by the quasi-Newton method L-BFGS-B, which is fast where the sides are smooth.  From where that ends
    it climbs by Nelder and Mead's simplices, which need no slopes.

    Parameters
    ----------
    sides : callable
        ``sides(x)`` returns (left, right) of the inequality left <= right for the problem with the parameters x (n,).
    bounds : array_like, shape (n, 2)
        Lowest and highest value of each parameter, finite; one for which they are equal is kept fixed.
    rng : int, SeedSequence or Generator, optional
        The same search for the same int; fresh entropy if omitted.
    starts : int, default 256
        Random points.
    climbs : int, default 8
        How many climbs start from these points; at most `starts`.
    compare : {"ratio", "difference"}, default "ratio"
        Whether to maximise left/right, for which the right side must not be negative, or left - right.  Where both sides
        are 0 the ratio is taken for 0, because an inequality between zeros says nothing.
    tolerance : float, default 1e-3
        How near is attained: of the ratio to 1, or of the difference to 0 relative to the larger side.

    Returns
    -------
    WorstCase

    Raises
    ------
    TypeError
        If `sides` is not a function.
    ValueError
        If the bounds are not finite pairs in order.  Also if a side is not a number, or the right side of a ratio is negative;
        the message gives the parameters.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> found = gt.worst_case(lambda x: (x[0] * (1 - x[0]), 0.25), [(0, 1)], rng=0)
    >>> found.attained, found.violated, float(found.parameters[0].round(3))
    (True, False, 0.5)
    """
    if not callable(sides):
        raise TypeError(f"sides must be a function of the parameters that returns (left, right), got {sides!r}")
    if not isinstance(compare, str) or compare not in ("ratio", "difference"):
        raise ValueError(f"compare must be 'ratio' or 'difference', got {compare!r}")
    box = as_real_array("bounds", bounds, 2)
    check_shape("bounds", box, (len(box), 2), "(n, 2), the lowest and highest value of each parameter")
    for number, (low, high) in enumerate(box):
        if low > high:
            raise ValueError(f"bounds must have no lowest above the highest, got ({low:g}, {high:g}) for parameter {number}")
    starts, climbs = as_count("starts", starts), as_count("climbs", climbs)
    tolerance = as_positive("tolerance", tolerance)
    free, tried = box[:, 1] > box[:, 0], []

    def score(point: Array) -> float:
        """Return left/right or left - right at a point of the unit cube, one coordinate for each parameter that is free."""
        parameters = box[:, 0].copy()
        parameters[free] += np.clip(point, 0.0, 1.0) * np.ptp(box[free], axis=1)
        computed = sides(parameters.copy())
        try:
            left, right = (float(side) for side in computed)
        except (TypeError, ValueError):
            raise ValueError(f"sides must return two numbers (left, right), got {computed!r}") from None
        place = f"({left}, {right}) at {parameters.tolist()}"
        if not np.isfinite([left, right]).all():
            raise ValueError(f"sides must return finite numbers, got {place}")
        if compare == "ratio" and right < 0.0:
            raise ValueError(f"sides must return a right side of at least 0 unless compare='difference', got {place}")
        ratio = left / right if right > 0.0 else np.inf if left > 0.0 else 0.0
        found = ratio if compare == "ratio" else left - right
        tried.append((found, parameters, left, right))
        return found

    def climb(start: Array) -> float:
        """Climb from a point of the unit cube, and return the highest score on the way."""
        from scipy.optimize import minimize  # slow to import, and seldom wanted

        begun = len(tried)
        score(start)
        if start.size:
            cube: Any = [(0.0, 1.0)] * len(start)
            limits: Any = {"xatol": 1e-6, "fatol": 1e-10, "maxfev": 200 * len(start)}
            smooth = minimize(loss, start, method="L-BFGS-B", bounds=cube, options={"eps": _SLOPE_STEP}).x
            minimize(loss, np.clip(smooth, 0.0, 1.0), method="Nelder-Mead", bounds=cube, options=limits)
        return max(found for found, *_ in tried[begun:])

    def loss(point: Array) -> float:
        return -min(score(point), _MOST)

    points = as_generator(rng).uniform(size=(starts, int(free.sum())))
    scores = np.array([score(point) for point in points])
    shares = np.array_split(np.arange(starts), min(climbs, starts))
    ends = np.array([climb(points[share[scores[share].argmax()]]) for share in shares])
    worst, parameters, left, right = max(tried, key=itemgetter(0))
    larger = max(abs(left), abs(right))
    violated = left - right > ROUNDING * larger
    short, least = (1.0 - worst, tolerance) if compare == "ratio" else (-worst, tolerance * larger)
    near = worst - tolerance * abs(worst) if np.isfinite(worst) else worst
    attained, agreeing = bool(short <= least and not violated), int((ends >= near).sum())
    return WorstCase(parameters, left, right, worst, attained, bool(violated), len(tried), agreeing)
