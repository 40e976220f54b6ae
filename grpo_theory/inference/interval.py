"""Confidence sets: what an interval function returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntervalFunction = TypeVar("IntervalFunction", bound=Callable[..., Any])


def vectorized(function: IntervalFunction) -> IntervalFunction:
    """Mark an interval function that takes many datasets at once, along leading axes of its data."""
    function.vectorized = True  # type: ignore[attr-defined]
    return function


def check_level(level: float) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not np.isscalar(level) or not 0.0 < float(level) < 1.0:  # type: ignore[arg-type]
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    return float(level)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Interval:
    """Confidence limits of one or several quantities, in arrays of one shape (...).

    A dataset from which no interval can be had gives NaN limits, which cover nothing.

    Attributes
    ----------
    estimate, standard_error : ndarray, shape (...)
    low, high : ndarray, shape (...)
        -inf or inf where the interval has one side.
    level : float
        The nominal coverage.
    """

    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    level: float

    @property
    def width(self) -> Array:
        """Upper less lower limit, shape (...)."""
        return self.high - self.low

    def covers(self, truth: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the truth, shape (...), lies within the limits."""
        truth = np.asarray(truth, dtype=np.float64)
        return (self.low <= truth) & (truth <= self.high)


@dataclass(frozen=True)
class Ellipsoid:
    """A joint confidence set {x : (x - estimate)' covariance^-1 (x - estimate) <= squared_radius}.

    Attributes
    ----------
    estimate : ndarray, shape (..., J)
    covariance : ndarray, shape (..., J, J)
        The estimated covariance of the estimate; NaN where it is singular, and then nothing is covered.
    squared_radius : ndarray, shape (...)
    level : float
        The nominal coverage.
    """

    estimate: Array
    covariance: Array
    squared_radius: Array
    level: float

    def squared_distance(self, point: ArrayLike) -> Array:
        """Return the squared Mahalanobis distance of a point (..., J) from the estimate, shape (...)."""
        deviation = np.asarray(point, dtype=np.float64) - self.estimate
        solved = np.linalg.solve(self.covariance, deviation[..., None])[..., 0]
        return np.einsum("...j,...j->...", deviation, solved)

    @property
    def width(self) -> Array:
        """The diameter of the ball of equal volume, shape (...)."""
        _, logarithm = np.linalg.slogdet(self.covariance)
        return 2.0 * np.sqrt(self.squared_radius) * np.exp(logarithm / (2.0 * self.estimate.shape[-1]))

    def covers(self, truth: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the truth (..., J) lies within, shape (...)."""
        return self.squared_distance(truth) <= self.squared_radius
