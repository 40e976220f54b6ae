"""Sets that are too small, for negative controls: a wrong constant that a check of coverage must find."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.intervals import Ellipsoid, Interval

Array = NDArray[np.float64]


def narrowed(interval: Interval, factor: float, centre: ArrayLike | None = None) -> Interval:
    """Return limits that are a factor of their distance from the estimate, or another centre; infinite ones stay."""
    middle = np.asarray(interval.estimate if centre is None else centre)

    def limit(end: Array) -> Array:
        with np.errstate(invalid="ignore"):
            moved = middle + factor * (end - middle)
        return np.where(np.isfinite(middle) & np.isfinite(end), moved, end)

    return Interval(interval.estimate, interval.standard_error, limit(interval.low), limit(interval.high), interval.level)


def narrowing(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Make the sets of an interval function smaller about their estimates."""

    def smaller(data: Any, level: float) -> Interval | Ellipsoid:
        answer = function(data, level)
        if isinstance(answer, Ellipsoid):
            return Ellipsoid(answer.estimate, answer.covariance, factor**2 * answer.squared_radius, answer.level)
        return narrowed(answer, factor)

    return smaller


def remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an interval function that is not asked again when the last question is put once more, about the very same data."""
    last: dict[str, Any] = {"data": None, "level": None, "answer": None}

    def asked(data: Any, level: float) -> Any:
        if data is not last["data"] or level != last["level"]:
            last.update(answer=function(data, level), data=data, level=level)
        return last["answer"]

    return asked
