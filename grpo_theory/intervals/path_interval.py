"""Intervals from the path of one training run alone, without Hessian or noise: batch means and random scaling."""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import brentq

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.intervals.interval import Interval, check_level, check_variation, student_interval, vectorized
from grpo_theory.intervals.local_model import as_contrasts
from grpo_theory.samples import TrainingRecord
from grpo_theory.samples.record import by_component
from grpo_theory.validation import ROUNDING, as_count, typed


def batch_boundaries(step_sizes: Array, batches: int) -> Integers:
    """Return the end of a first stretch to discard and the ends of `batches` batches, in steps, shape (batches + 1,).

    Boundaries are equally far apart in the sum of the steps, which is the clock by which a run forgets.  For steps i^-a these are
    the growing batches ``n ((k + 1)/(batches + 1))^(1/(1-a))`` of Chen, Lee, Tong and Zhang (2020).

    Raises
    ------
    ValueError
        If a batch would be empty.
    """
    batches = as_count("batches", batches, 2)
    clock = np.cumsum(step_sizes)
    marks = clock[-1] * np.arange(1, batches + 2) / (batches + 1)
    ends = np.searchsorted(clock, marks * (1.0 - 1e-12)) + 1
    ends[-1] = len(step_sizes)
    if (np.diff(ends) == 0).any():
        raise ValueError(f"batches must be few enough for the {len(step_sizes)} steps to fill them all, got {batches}")
    return ends.astype(np.int64)


@vectorized
@typed
def batch_means(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None, batches: int = 6) -> Interval:
    """Return intervals for linear functionals of the maximiser from means of growing batches of iterates.

    Let X_k be the batch means over n_k steps, and X their weighted mean.  The limits are
    ``X +- t sqrt(sum_k n_k (X_k - X)^2 / ((m - 1) sum_k n_k))``, with t the quantile of Student's law with m - 1 degrees of
    freedom.  The method is that of Chen, Lee, Tong and Zhang (2020, Annals of Statistics 48); Zhu, Chen and Wu (2023) have
    overlapping batches.  The first stretch of the run, as long as a batch, is discarded.

    Parameters
    ----------
    record : TrainingRecord
        Needs no Hessian; its path may hold functionals only.
    level : float, default 0.95
    contrasts : array_like, shape (J, d), optional
        The functionals; the coordinates if omitted.
    batches : int, default 6
        The number m of batches.

    Returns
    -------
    Interval
        Shape (..., J), around the mean of the batches.

    Raises
    ------
    ValueError
        If the steps do not fill the batches; for a single run, if a functional does not move.

    Notes
    -----
    Valid for steps i^-a, a in (1/2, 1), as n grows, whatever the estimator: the target is the zero of its mean.  A batch must be
    long against the run's memory 1/(eta lambda); short batches are alike, and the interval is then too narrow.  With steps beta/i
    batches never become independent, and the interval is not valid.  With constant steps eta the target is the mean of the
    stationary law, which is theta* up to O(eta).

    Measured (study "coverage_runs"): short after 1,500 steps, which are few; most so with constant steps.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Power(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.batch_means(record).low.shape
    (1, 3)
    """
    level = check_level(level)
    path = _functionals(record, contrasts)
    ends = batch_boundaries(record.step_sizes, batches)
    sizes = np.diff(ends)
    means = np.add.reduceat(path, ends[:-1], axis=-1) / sizes
    estimate = (means @ sizes) / sizes.sum()
    squares = ((means - estimate[..., None]) ** 2 @ sizes) / (batches - 1)
    error = np.where(_still(path, record, contrasts), 0.0, np.sqrt(squares / sizes.sum()))
    return student_interval(estimate, error, batches - 1, level, single=path.ndim == 2, of="the iterates")


@vectorized
@typed
def random_scaling(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None) -> Interval:
    """Return intervals for linear functionals of the maximiser by random scaling.

    Let m_s be the average of the first s iterates.  The limits are ``m_n +- q sqrt(V/n)`` with
    ``V = (1/n^2) sum_s s^2 (m_s - m_n)^2`` (Lee, Liao, Seo and Shin 2022, Algorithm 1).  The quantile q is
    `random_scaling_quantile`, because V does not settle.

    Parameters
    ----------
    record : TrainingRecord
        Needs no Hessian; its path may hold functionals only.
    level, contrasts
        As for `batch_means`.

    Returns
    -------
    Interval
        Shape (..., J), around their average; the standard error is sqrt(V/n), not that of a normal law.

    Raises
    ------
    ValueError
        For a single run, if a functional does not move.

    Notes
    -----
    Valid, like `batch_means`, for steps i^-a, a in (1/2, 1), as n grows, and whatever the estimator; there is no
    tuning number. Not valid with steps beta/i, whose averages do not tend to a Brownian motion, nor while the average remembers
    the start.

    Measured (study "coverage_runs"): short after 1,500 steps, which are few; most so with constant steps.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Power(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.random_scaling(record).low.shape
    (1, 3)
    """
    level = check_level(level)
    path = _functionals(record, contrasts)
    n = path.shape[-1]
    estimate = path.mean(axis=-1)
    sums = np.cumsum(path - estimate[..., None], axis=-1)
    still = _still(path, record, contrasts)
    check_variation(still, single=path.ndim == 2, of="the iterates")
    error = np.where(still, np.nan, np.sqrt((sums**2).sum(axis=-1)) / n**1.5)
    half = random_scaling_quantile(level) * error
    return Interval(estimate, error, estimate - half, estimate + half, level)


def random_scaling_tail(x: float) -> float:
    """Return P(|T| > x) of T = W(1) / sqrt(int (W(r) - r W(1))^2 dr), W a Brownian motion.

    W(1) is normal and independent of U, the integral, whose Laplace transform is E exp(-s U) = sqrt(sqrt(2s)/sinh sqrt(2s)).
    With Craig's form of the normal tail, P(|N| > y) = (2/pi) int_0^{pi/2} exp(-y^2/(2 sin^2 u)) du,

        P(|T| > x) = (2/pi) int_0^{pi/2} sqrt(z/sinh z) du,    z = x / sin u.

    The law is that of Abadir and Paruolo (1997); the integrand is smooth, and the error is below 1e-12.
    """

    def integrand(u: float) -> float:
        z = x / np.sin(u) if u > 0.0 else np.inf
        # z / sinh z = 2 z exp(-z) / (1 - exp(-2 z)), which does not overflow; beyond 1400 its root is below 1e-300.
        return float(np.sqrt(2.0 * z / -np.expm1(-2.0 * z)) * np.exp(-z / 2.0)) if z < 1400.0 else 0.0

    if x <= 0.0:
        return 1.0
    return 2.0 / np.pi * quad(integrand, 0.0, np.pi / 2.0, epsabs=1e-14, epsrel=1e-13)[0]


def random_scaling_quantile(level: float) -> float:
    """Return the q with P(|T| <= q) = level, to ten digits; 6.747 at 95% (Lee et al. 2022, Table 1).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.intervals.random_scaling_quantile(0.95), 3)
    6.747
    """
    return _quantile(check_level(level))


@cache
def _quantile(level: float) -> float:
    miss = 1.0 - level
    high = 1.0
    while random_scaling_tail(high) > miss:
        high *= 2.0
    return float(brentq(lambda x: random_scaling_tail(x) - miss, 0.0, high, xtol=1e-12, rtol=1e-13))


def _functionals(record: TrainingRecord, contrasts: ArrayLike | None) -> Array:
    """Return the functionals of the iterates theta_1..theta_n, shape (..., J, n)."""
    path = by_component(record.path[..., 1:, :])
    return path if contrasts is None else as_contrasts(contrasts, record.dimension) @ path


def _still(functionals: Array, record: TrainingRecord, contrasts: ArrayLike | None) -> Flags:
    """Return which functionals of the iterates (..., J, n) do not move but for rounding, shape (..., J)."""
    path = by_component(record.path[..., 1:, :])
    size = np.maximum(path.max(axis=-1), -path.min(axis=-1))
    if contrasts is not None:
        size = size @ np.abs(as_contrasts(contrasts, record.dimension)).T
    return np.asarray(np.ptp(functionals, axis=-1) <= ROUNDING * size)
