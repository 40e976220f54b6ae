"""Sets that are too small, for negative controls: a wrong constant that a check of coverage must find."""

import numpy as np

from grpo_theory.intervals import Ellipsoid, Interval


def narrowed(interval, factor, centre=None):
    """Return limits that are a factor of their distance from the estimate, or another centre; infinite ones stay."""
    middle = np.asarray(interval.estimate if centre is None else centre)

    def limit(end):
        with np.errstate(invalid="ignore"):
            moved = middle + factor * (end - middle)
        return np.where(np.isfinite(middle) & np.isfinite(end), moved, end)

    return Interval(interval.estimate, interval.standard_error, limit(interval.low), limit(interval.high), interval.level)


def narrowing(function, factor):
    """Make the sets of an interval function smaller about their estimates."""

    def smaller(data, level):
        answer = function(data, level)
        if isinstance(answer, Ellipsoid):
            return Ellipsoid(answer.estimate, answer.covariance, factor**2 * answer.squared_radius, answer.level)
        return narrowed(answer, factor)

    return smaller


def remembering(function):
    """Make an interval function that is not asked again when the last question is put once more, about the very same data."""
    last = [None, None, None]

    def asked(data, level):
        if data is not last[0] or level != last[1]:
            last[:] = data, level, function(data, level)
        return last[2]

    return asked
