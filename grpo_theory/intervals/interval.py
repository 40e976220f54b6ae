"""Confidence sets: what an interval function returns, and the limits of Student and of Fieller."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from grpo_theory.arrays import Array, Flags, Number
from grpo_theory.validation import Argument, ArgumentError, as_numbers, shown

IntervalFunction = TypeVar("IntervalFunction", bound=Callable[..., Any])

LEAST_LEVEL = 1e-12
"""Below it an interval has no width but that of rounding."""


def vectorized(function: IntervalFunction) -> IntervalFunction:
    """Mark an interval function that takes many datasets at once, along leading axes of its data.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> @gt.intervals.vectorized
    ... def range_of_prompts(data, level):
    ...     means = data.rewards.mean(axis=-1)
    ...     return means.min(axis=-1), means.max(axis=-1)
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> gt.coverage(range_of_prompts, problem, truth, experiment=pilot, replications=200, rng=0).replications
    200
    """
    function.vectorized = True  # type: ignore[attr-defined]
    return function


def check_level(level: float) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, numbers.Real) or not 0.0 < level < 1.0:
        raise ArgumentError(Argument("level"), f" must lie strictly between 0 and 1, got {shown(level)}")
    if level < LEAST_LEVEL:
        raise ArgumentError(Argument("level"), f" must be at least {LEAST_LEVEL:g}, got {level}")
    return float(level)


@dataclass(frozen=True, eq=False)
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
    note : str, default ""
        Why a limit is infinite, where one is that has two sides; or that it is beyond what there can be.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> rollouts = gt.RaggedRollouts(["a", "a", "b", "b", "b", "c"], [1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    >>> interval = gt.intervals.value_effective(rollouts)
    >>> round(float(interval.low), 2), round(float(interval.high), 2), bool(interval.covers(0.5))
    (0.0, 1.0, True)
    """

    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    level: float
    note: str = ""

    @property
    def width(self) -> Array:
        """Upper less lower limit, shape (...)."""
        return self.high - self.low

    def covers(self, truth: ArrayLike) -> Flags:
        """Return whether the truth, shape (...), lies within the limits."""
        truth = as_numbers("truth", truth)
        return (self.low <= truth) & (truth <= self.high)


@dataclass(frozen=True, eq=False)
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

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rollouts = gt.Rollouts(data.rewards[data.index], data.sketches[data.index][..., :2])
    >>> joint = gt.intervals.gradient_ellipsoid(rollouts)
    >>> bool(joint.covers(joint.estimate)), float(joint.squared_distance(joint.estimate)), joint.covariance.shape
    (True, 0.0, (2, 2))
    """

    estimate: Array
    covariance: Array
    squared_radius: Array
    level: float

    def squared_distance(self, point: ArrayLike) -> Array:
        """Return the squared Mahalanobis distance of a point (..., J) from the estimate, shape (...)."""
        deviation = as_numbers("point", point) - self.estimate
        solved = np.linalg.solve(self.covariance, deviation[..., None])[..., 0]
        return np.einsum("...j,...j->...", deviation, solved)

    @property
    def width(self) -> Array:
        """The diameter of the ball of equal volume, shape (...)."""
        with np.errstate(invalid="ignore"):
            _, logarithm = np.linalg.slogdet(self.covariance)
        return 2.0 * np.sqrt(self.squared_radius) * np.exp(logarithm / (2.0 * self.estimate.shape[-1]))

    def covers(self, truth: ArrayLike) -> Flags:
        """Return whether the truth (..., J) lies within, shape (...)."""
        return self.squared_distance(truth) <= self.squared_radius


def check_variation(constant: Flags, *, single: bool, of: str) -> None:
    """Raise ValueError if the data are one dataset and a component, shape (...), does not vary; `of` says what should."""
    if single and constant.any():
        where = ", ".join(str(i) for i in np.flatnonzero(constant)) if constant.ndim else ""
        raise ValueError(f"{of} do not vary{f' in component {where}' if where else ''}: they give no standard error")


def student_quantile(degrees_of_freedom: Number, level: float) -> Number:
    """Return what |t| exceeds with probability 1 - level, from the lower tail: levels that are next to 1 have one too."""
    return -stdtrit(degrees_of_freedom, (1.0 - level) / 2.0)


def normal_quantile(level: float) -> float:
    """Return what a standard normal variable exceeds in size with probability 1 - level."""
    return -float(ndtri((1.0 - level) / 2.0))


def student_interval(
    estimate: Array, standard_error: Array, degrees_of_freedom: ArrayLike, level: float, *, single: bool, of: str
) -> Interval:
    """Return Student's t limits, estimate -+ t standard errors.

    Parameters
    ----------
    estimate, standard_error : ndarray, shape (...)
    degrees_of_freedom : array_like, broadcast to (...)
    level : float
    single : bool
        Whether the data are one dataset, without leading axes.
    of : str
        What the standard error measures the variation of, for the message.

    Raises
    ------
    ValueError
        If `single` and a standard error is 0. With many datasets the limits are NaN there.
    """
    level = check_level(level)
    degenerate = ~(standard_error > 0.0)
    check_variation(degenerate, single=single, of=of)
    degrees = as_numbers("degrees_of_freedom", degrees_of_freedom)
    half = student_quantile(degrees, level) * np.where(degenerate, np.nan, standard_error)
    return Interval(estimate, standard_error, estimate - half, estimate + half, level)


def quotient_limits(
    numerator: ArrayLike,
    denominator: ArrayLike,
    variances: tuple[ArrayLike, ArrayLike, ArrayLike],
    lower_quantile: ArrayLike,
    upper_quantile: ArrayLike,
) -> tuple[Array, Array]:
    """Return Fieller's (1954) limits of a ratio of two estimated numbers n and d, neither below 0.

    They are the least and the greatest of the ratios r >= 0 that pass a test: ``lower <= (n - r d)/se(r) <= upper``, where
    ``se(r)^2 = v_nn - 2 r v_nd + r^2 v_dd``. The lower limit is 0 where ``n <= upper sqrt(v_nn)``, and the upper one is inf where
    ``d <= -lower sqrt(v_dd)``. The limits are the ends of the hull of these ratios (docs/derivations.md, section 10).

    Parameters
    ----------
    numerator, denominator : array_like, broadcast to (...)
        n and d, at least 0.
    variances : tuple of array_like, broadcast to (...)
        v_nn, v_nd and v_dd.
    lower_quantile, upper_quantile : array_like, broadcast to (...)
        lower <= 0 <= upper.
    """
    n, d, v_nn, v_nd, v_dd = (as_numbers("each part of a quotient", value) for value in (numerator, denominator, *variances))
    # Fourth powers follow, so all is taken in a unit that makes the largest about 1: a power of 2, which changes no digit.
    _, unit = np.frexp(np.maximum(np.maximum(np.abs(n), np.abs(d)), np.sqrt(np.maximum(np.abs(v_nn), np.abs(v_dd)))))
    n, d = (np.ldexp(value, -unit) for value in (n, d))
    v_nn, v_nd, v_dd = (np.ldexp(value, -2 * unit) for value in (v_nn, v_nd, v_dd))

    def quadratic(quantile: ArrayLike) -> tuple[Array, Array, Array]:
        t = as_numbers("a quantile", quantile)
        a, b, c = d**2 - t**2 * v_dd, d * n - t**2 * v_nd, n**2 - t**2 * v_nn
        return a, b + np.sqrt(np.maximum(b**2 - a * c, 0.0)), c

    _, root, c = quadratic(upper_quantile)
    low = np.divide(c, root, out=np.zeros_like(root), where=(c > 0.0) & (root > 0.0))
    a, root, _ = quadratic(lower_quantile)
    high = np.divide(root, a, out=np.full_like(root, np.inf), where=a > 0.0)
    return low, high
