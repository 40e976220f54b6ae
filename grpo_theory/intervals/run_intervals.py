"""Intervals from one training run: for the maximiser, for values, and for the gap that is left."""

from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import brentq

from grpo_theory.intervals.interval import Interval, around, check_level, interval_function, student_interval
from grpo_theory.intervals.records import TrainingRecord, by_component
from grpo_theory.intervals.rollout_intervals import shifted, shifted_mean
from grpo_theory.theory import WeightedChiSquare
from grpo_theory.validation import ROUNDING, Array, Flags, Integers, as_count, as_real_array, check_shape, read_only, typed

RANK_TOLERANCE = 1e-9
CONTRAST_TOLERANCE = 1e-6


def law_of_mean(step_sizes: Array, curvatures: Array, noise: Array, last: int) -> tuple[Array, Array]:
    """Return the covariance (..., d, d) of the mean of the last iterates, and how much of the start is left in it (..., d).

    Drift is linear and noise constant: theta_i - theta* = (I - eta_i A)(theta_{i-1} - theta*) + eta_i noise.  In the basis of A
    the mean is theta* + start (theta_0 - theta*) plus noise.  For the last iterate and steps beta/i the covariance tends to the
    solution of the Lyapunov equation over n.  With constant steps it tends to the stationary covariance.  For many iterates and
    steps i^-b it tends to ``H^-1 Gamma H^-1 / m``.  Nothing is said of flat directions, where the start stays.

    Parameters
    ----------
    step_sizes : ndarray, shape (n,)
    curvatures, noise : ndarray
        As from `fit_local_model`.
    last : int
        The number of iterates in the mean.
    """
    weights = np.zeros(len(step_sizes))
    weights[-last:] = 1.0 / last
    reach, products = np.zeros_like(curvatures), np.zeros_like(noise)
    # From the last step back, reach_i = sum_{j >= i} weight_j prod_{i < l <= j} (1 - eta_l a).  The error of the gradient at step
    # i has the influence eta_i reach_i, and the covariance is noise times the sum of eta_i^2 reach_i reach_i'.
    # With weights 1/m on the last m steps, eta_i reach_i is N_i/m of docs/derivations.md, section 13.1; at m = 1 it is M_i.
    with np.errstate(over="ignore", invalid="ignore"):
        for weight, step in zip(weights[::-1], step_sizes[::-1], strict=True):
            reach = reach + weight
            products += (step**2 * reach)[..., :, None] * reach[..., None, :]
            reach = reach * (1.0 - step * curvatures)
        below = np.tril(products, -1)
        covariance = noise * (np.tril(products) + np.swapaxes(below, -1, -2))
    # P = sum_j weight_j prod_{l <= j} (1 - eta_l a) (docs/derivations.md, section 13.1).
    return covariance, np.where(curvatures == 0.0, 0.0, reach)


def fit_local_model(record: TrainingRecord) -> tuple[Array, Array, Array, Flags]:
    """Estimate drift and noise from a run.

    Returns
    -------
    curvatures : ndarray, shape (..., d)
        Eigenvalues of A, minus the estimated Hessian; 0 in flat directions, and in all of a run that is not usable.
    directions : ndarray, shape (..., d, d)
        Their eigenvectors, in columns.
    noise : ndarray, shape (..., d, d)
        The estimated covariance of the gradient estimate in that basis; 0 in flat directions, and NaN for a run that is not
        usable.
    usable : ndarray of bool, shape (...)
        Whether the estimates allow a limit law.

    Raises
    ------
    ValueError
        If the record has no Hessian. For a single run, also if the estimated Hessian is positive along some direction or 0 along
        all. Finally, if the steps of a single run fall too fast or are too large for it.
    """
    if record.hessian is None:
        raise ValueError("hessian must be in the record for a plug-in interval, got None; see rollout_hessian")
    finite = np.isfinite(record.path).all(axis=(-2, -1)) & np.isfinite(record.hessian).all(axis=(-2, -1))
    hessian = np.where(np.expand_dims(finite, (-2, -1)), record.hessian, 0.0)
    curvatures, directions = np.linalg.eigh(-(hessian + np.swapaxes(hessian, -1, -2)) / 2.0)
    flat = np.abs(curvatures) <= RANK_TOLERANCE * np.abs(curvatures).max(axis=-1, keepdims=True)
    curvatures = np.where(flat, 0.0, curvatures)
    slowest = np.where(flat, np.inf, curvatures).min(axis=-1)
    step = record.step_sizes[-1]
    fall = 1.0 / step - 1.0 / record.step_sizes[-2]
    # The start is forgotten if 2 lambda_min > lim (1/eta_n - 1/eta_{n-1}) (Pelletier 1998; docs/derivations.md, section 13.1).
    # A step shrinks every error, |1 - eta lambda| < 1, if eta lambda_max < 2.
    usable = (slowest > 0.0) & np.isfinite(slowest) & (2.0 * slowest > fall) & (step * curvatures.max(axis=-1) < 2.0)
    if usable.ndim == 0 and not usable:
        if not np.isfinite(slowest):
            raise ValueError("hessian must be negative along some direction, and the estimate is 0 along all")
        if slowest <= 0.0:
            direction = np.round(directions[:, int(np.argmin(curvatures))], 3).tolist()
            raise ValueError(
                f"hessian must be negative or zero along every direction, got {-slowest:.4g} along {direction}: "
                "the run is too short, or not yet near a maximiser"
            )
        if 2.0 * slowest <= fall:
            raise ValueError(
                f"step_sizes fall too fast for a limit law: beta = {1.0 / fall:.4g} must be above 1/(2 lambda) = "
                f"{0.5 / slowest:.4g} with the estimated smallest curvature lambda = {slowest:.4g}"
            )
        most = 2.0 / curvatures.max()
        raise ValueError(f"step_sizes must be below 2/lambda = {most:.4g} with the estimated largest curvature, got {step:.4g}")
    # Q' Gamma Q; it is 0 where no probability changes: scores are orthogonal to such directions (docs/derivations.md,
    # section 13.1).
    noise = np.swapaxes(directions, -1, -2) @ np.where(np.expand_dims(finite, (-2, -1)), record.noise, 0.0) @ directions
    noise = np.where(flat[..., :, None] | flat[..., None, :], 0.0, noise)
    # Along a positive curvature the recursion grows without bound.
    curvatures = np.where(np.expand_dims(usable, -1), curvatures, 0.0)
    return curvatures, directions, np.where(np.expand_dims(usable, (-2, -1)), noise, np.nan), usable


_LAWS: WeakKeyDictionary[TrainingRecord, dict[int, tuple[Array, Array, Flags, Array, Array]]] = WeakKeyDictionary()
"""Fitted laws, as long as the records live: several intervals ask for them of the same record."""


def fitted_law(record: TrainingRecord, last: int) -> tuple[Array, Array, Flags, Array, Array]:
    """Return curvatures, directions and which runs are usable as `fit_local_model` does, and what `law_of_mean` makes of them."""
    known = _LAWS.setdefault(record, {})
    if last not in known:
        curvatures, directions, noise, usable = fit_local_model(record)
        known[last] = read_only((curvatures, directions, usable, *law_of_mean(record.step_sizes, curvatures, noise, last)))
    return known[last]


def in_basis(point: Array, directions: Array) -> Array:
    """Return the components of a point (..., d) along directions, the columns of matrices (..., d, d)."""
    return (point[..., None, :] @ directions)[..., 0, :]


def as_contrasts(contrasts: ArrayLike | None, dimension: int) -> Array:
    """Return linear functionals as an array (J, d); the coordinates if omitted."""
    if contrasts is None:
        return np.eye(dimension)
    array = as_real_array("contrasts", contrasts, 2)
    check_shape("contrasts", array, (len(array), dimension), "(J, d)")
    if (array == 0.0).all(axis=1).any():
        raise ValueError("contrasts must not have a row of zeros")
    return array


@interval_function
def last_iterate(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None) -> Interval:
    """Return intervals for linear functionals of the maximiser from the last iterate.

    To first order theta_n is ``theta* + P (theta_0 - theta*)`` plus noise.  P and the covariance of the noise are known functions
    of the run's own steps, the Hessian and the noise of a gradient.  With the last two estimated,
    ``(I - P)^-1 (theta_n - P theta_0)`` is centred at theta* wherever the run started (docs/derivations.md, sections 6 and 13).

    Parameters
    ----------
    record : TrainingRecord
        With a Hessian.
    level : float, default 0.95
    contrasts : array_like, shape (J, d), optional
        The functionals; the coordinates if omitted.

    Returns
    -------
    Interval
        Shape (..., J).

    Notes
    -----
    Valid as n grows, for estimators whose mean is the gradient ("reinforce", "oracle", "optimal", "rloo").  The steps may be
    ``beta/(i + i_0)`` with beta > 1/(2 lambda_min), or i^-a with a in (1/2, 1).  A run of "dr_grpo" is one of "rloo" with steps
    ``(1 - 1/G) eta``: give it those.  With constant steps eta the iterate is centred at theta* only up to O(eta).  Not valid
    while the run is still far from theta*, where the drift is not linear.  At distances of a few units of logits, P and the
    Hessian are wrong.

    Measured (study "coverage_runs"): nominal with steps beta/i from the maximiser.  It is a little short over the design (three
    schedules, three problems, a start 1.5 away), and more so in short runs.

    Raises
    ------
    ValueError
        See `fit_local_model`; and if a functional has a part along a direction in which the objective is flat.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gt.intervals.last_iterate(record).covers(optimum).tolist()
    [[True, True, True]]
    """
    return _normal(record, level, contrasts, record.path[..., -1, :], 1)


@interval_function
def averaged_iterate(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None) -> Interval:
    """Return intervals for linear functionals of the maximiser from the average of the iterates of the last part.

    This is `last_iterate` with the mean of the last part in place of theta_n.  The run's own steps are used, which need not fall
    slowly.  For steps i^-a, a in (1/2, 1), the covariance tends to ``H^-1 Gamma H^-1 / m`` (Polyak and Juditsky 1992).  For the
    last m steps see Rakhlin, Shamir and Sridharan (2012).

    Parameters
    ----------
    record, level, contrasts
        As for `last_iterate`.  With ``record.tail = 1`` the average is over all iterates.

    Returns
    -------
    Interval
        Shape (..., J).

    Notes
    -----
    Valid for the same estimators and steps as `last_iterate`.  The average is centred at theta* up to the mean step of
    the last part.  Where that step is not small against the interval's width, the interval is too narrow.  With constant steps
    this happens in the end, because the width falls as n^{-1/2} and the bias stays.

    Measured (study "coverage_runs"): near nominal with falling steps; short with constant ones, and in short runs.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.PowerLaw(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.averaged_iterate(record).covers(optimum).shape
    (1, 3)
    """
    return _normal(record, level, contrasts, record.average, record.steps - record.tail_start)


def _normal(record: TrainingRecord, level: float, contrasts: ArrayLike | None, point: Array, last: int) -> Interval:
    """Put normal limits around functionals of a point (..., d), the mean of the last iterates, without what is left of the start.

    Raises
    ------
    ValueError
        As `fit_local_model`; and for a single run if a functional has a part along a flat direction.
    """
    curvatures, directions, usable, covariance, start = fitted_law(record, last)
    functionals = as_contrasts(contrasts, record.dimension)
    along = functionals @ directions
    flat = np.where(np.expand_dims(curvatures == 0.0, -2), along, 0.0)
    identified = np.sqrt((flat**2).sum(axis=-1)) <= CONTRAST_TOLERANCE * np.linalg.norm(functionals, axis=-1)
    if usable.ndim == 0 and not identified.all():
        row = int(np.argmin(identified))
        direction = np.round(directions @ flat[row] / np.linalg.norm(flat[row]), 3).tolist()
        raise ValueError(f"contrasts must be identifiable: row {row} has a part along {direction}, where the objective is flat")
    # With P = start, (I - P)^-1 (point - P theta_0) is centred at theta* wherever the run started.
    kept = 1.0 - start
    centre = (in_basis(point, directions) - start * in_basis(record.path[..., 0, :], directions)) / kept
    # Its covariance is (I - P)^-1 Cov(e_n) (I - P)^-1 (docs/derivations.md, section 13.1).
    spread = covariance / kept[..., :, None] / kept[..., None, :]
    variance = np.einsum("...ji,...ik,...jk->...j", along, spread, along)
    error = np.sqrt(np.where(identified, variance, np.nan))
    return around((along @ centre[..., None])[..., 0], error, check_level(level))


@typed
def gap_weights(record: TrainingRecord) -> Array:
    """Estimate the weights of the chi-squares in the law of the last iterate's suboptimality gap, shape (..., d).

    They are the eigenvalues of ``(1/2) A^(1/2) S A^(1/2)``, where A is minus the estimated Hessian.  S is the estimated second
    moment of the iterate about theta*, and includes what is left of the start.  Weights are 0 in flat directions, and NaN for a
    run that allows no limit law.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gt.intervals.gap_weights(record).shape
    (1, 3)
    """
    curvatures, directions, usable, covariance, start = fitted_law(record, 1)
    # theta_0 - theta* is (theta_0 - theta_n) / (1 - start), up to noise.
    rest = start / (1.0 - start) * in_basis(record.path[..., 0, :] - record.path[..., -1, :], directions)
    # Cov(e_n) + b b', b = P (I - P)^-1 (theta_0 - theta_n) (docs/derivations.md, section 13.1).
    moments = covariance + rest[..., :, None] * rest[..., None, :]
    # (1/2) e' A e = sum_k w_k chi^2_1, w the eigenvalues of (1/2) A^(1/2) S A^(1/2) (docs/derivations.md, section 13.1).
    root = np.sqrt(np.maximum(curvatures, 0.0))
    matrices = root[..., :, None] * moments * root[..., None, :] / 2.0
    weights = np.linalg.eigvalsh(np.where(usable[..., None, None], matrices, 0.0))
    return np.where(usable[..., None], np.maximum(weights, 0.0), np.nan)


@interval_function
def gap_limit(record: TrainingRecord, level: float = 0.95) -> Interval:
    """Return an upper confidence limit for the suboptimality gap J(theta*) - J(theta_n) of the last iterate.

    The gap's limit law is that of ``sum_k w_k chi^2_1`` (Theorem 8 of arXiv 2603.01162, corrected: docs/derivations.md,
    section 6).  The upper limit is the quantile of this law with estimated weights.

    Parameters
    ----------
    record : TrainingRecord
        With a Hessian.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...): [0, quantile].  The estimate is the mean of the law, the standard error its standard deviation.

    Notes
    -----
    Valid where `last_iterate` is.  The gap is a random number that differs from run to run: the level is the share of
    runs whose gap lies below their limit.

    Measured (study "coverage_runs"): nominal with steps beta/i from the maximiser, a little short elsewhere and in short runs.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gap = gt.objective(problem, optimum) - gt.objective(problem, record.path[0, -1])
    >>> gt.intervals.gap_limit(record).covers(gap).tolist()
    [True]
    """
    level, weights = check_level(level), gap_weights(record)
    usable = np.isfinite(weights).all(axis=-1) & (np.nan_to_num(weights) > 0.0).any(axis=-1)
    high = np.full(usable.shape, np.nan)
    if usable.any():
        high[usable] = WeightedChiSquare(weights[usable]).ppf(level)
    # Var(sum_k w_k chi^2_1) = 2 sum_k w_k^2 (docs/derivations.md, section 13.2).
    spread = np.sqrt(2.0 * (weights**2).sum(axis=-1))
    return Interval(weights.sum(axis=-1), spread, np.where(np.isnan(high), np.nan, 0.0), high, level)


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


@interval_function
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
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.PowerLaw(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.batch_means(record).low.shape
    (1, 3)
    """
    path, still = _functionals(record, contrasts)
    ends = batch_boundaries(record.step_sizes, batches)
    sizes = np.diff(ends)
    means = np.add.reduceat(path, ends[:-1], axis=-1) / sizes
    estimate = (means @ sizes) / sizes.sum()
    squares = ((means - estimate[..., None]) ** 2 @ sizes) / (batches - 1)
    error = np.where(still, 0.0, np.sqrt(squares / sizes.sum()))
    return student_interval(estimate, error, batches - 1, level, single=path.ndim == 2, of="the iterates")


@interval_function
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
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.PowerLaw(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.random_scaling(record).low.shape
    (1, 3)
    """
    level = check_level(level)
    path, still = _functionals(record, contrasts)
    estimate = path.mean(axis=-1)
    # sums_s = s (m_s - m_n), so that V/n = sum_s sums_s^2/n^3 (Lee, Liao, Seo and Shin 2022, Algorithm 1).
    sums = np.cumsum(path - estimate[..., None], axis=-1)
    error = np.where(still, np.nan, np.sqrt((sums**2).sum(axis=-1)) / path.shape[-1] ** 1.5)
    return around(estimate, error, level, random_scaling_quantile(level), single=path.ndim == 2, of="the iterates")


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
    # P(|T| > x) = (2/pi) int_0^{pi/2} sqrt(z/sinh z) du (docs/derivations.md, section 13.3).
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
    # The tail is 0 at 2048, in double precision.
    high = next(2.0**k for k in range(12) if random_scaling_tail(2.0**k) <= 1.0 - level)
    return float(brentq(lambda x: random_scaling_tail(x) - (1.0 - level), 0.0, high, xtol=1e-12, rtol=1e-13))


def _functionals(record: TrainingRecord, contrasts: ArrayLike | None) -> tuple[Array, Flags]:
    """Return the functionals of the iterates theta_1..theta_n (..., J, n), and which do not move but for rounding (..., J)."""
    path = by_component(record.path[..., 1:, :])
    size, found = np.maximum(path.max(axis=-1), -path.min(axis=-1)), path
    if contrasts is not None:
        functionals = as_contrasts(contrasts, record.dimension)
        size, found = size @ np.abs(functionals).T, functionals @ path
    return found, np.asarray(np.ptp(found, axis=-1) <= ROUNDING * size)


@interval_function
def tail_value(record: TrainingRecord, level: float = 0.95) -> Interval:
    """Return an interval for the mean objective of the policies of the last part of a run.

    The limits are the mean of the m mean rewards of the last part, +- ``z s/sqrt(m)``, with s their standard deviation.  Given
    the past, a step's mean reward has mean J(theta_{i-1}), so that the errors are martingale differences.  No batches are needed,
    though the iterates are dependent.

    Parameters
    ----------
    record : TrainingRecord
        Needs no Hessian.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...); NaN limits for those of many runs whose mean rewards of the last part are all equal.

    Raises
    ------
    ValueError
        If the mean rewards of the last part of a single run are all equal: they give no standard error.

    Notes
    -----
    The target is (1/m) sum_i J(theta_{i-1}) over the last part, with the penalty in J.  Valid as m grows, for any estimator and
    any steps; while J still rises it is conservative, because s then includes the rise as well.  J(theta_n) and J(theta*) are
    other numbers: see `learned_value` and `best_value`.

    Measured (study "coverage_runs"): nominal with steps beta/i from the maximiser, a little short elsewhere.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 8, "group_size": 8, "steps": 100, "replications": 1}
    >>> record = next(gt.simulate_records(problem, problem.theta, "rloo", gt.Constant(0.2), **sizes, rng=0))
    >>> interval = gt.intervals.tail_value(record)
    >>> bool(0.0 < interval.low[0] < interval.high[0] < 1.0)
    True
    """
    return _tail_interval(record, level)


@interval_function
def learned_value(record: TrainingRecord, level: float = 0.95) -> Interval:
    """Return an interval for the objective J(theta_n) of the learned policy.

    The estimate is the mean reward of the last part, plus the mean gap of that part, less the gap of the last iterate.  Both gaps
    are plug-in estimates (docs/derivations.md, section 13).  The variance of the last gap is added to that of the mean.

    Parameters
    ----------
    record : TrainingRecord
        With a Hessian.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...).

    Notes
    -----
    Valid where `last_iterate` is, and where the gap is small against the width, because the gap is not normal.  The gap is of
    order 1/n, and the width of order n^{-1/2}.  The delta method is of no use: the gradient is 0 at the maximiser.  A clustered
    interval from fresh rollouts of the learned policy has the same target and needs none of this.

    Measured (study "coverage_runs"): nominal with steps beta/i from the maximiser, a little short elsewhere and in short runs.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gt.intervals.learned_value(record).covers(gt.objective(problem, record.path[0, -1])).tolist()
    [True]
    """
    return _tail_interval(record, level, less=1.0)


@interval_function
def best_value(record: TrainingRecord, level: float = 0.95) -> Interval:
    """Return an interval for the maximum J(theta*) of the objective.

    The mean reward of the last part plus its mean gap, plug-in (docs/derivations.md, section 13).

    Parameters
    ----------
    record : TrainingRecord
        With a Hessian.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...).

    Notes
    -----
    Valid where `last_iterate` is, over the whole last part: the start must be forgotten where it begins.

    Measured (study "coverage_runs"): nominal with steps beta/i from the maximiser, a little short elsewhere and in short runs.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gt.intervals.best_value(record).covers(gt.objective(problem, optimum)).tolist()
    [True]
    """
    return _tail_interval(record, level, less=0.0)


def _tail_interval(record: TrainingRecord, level: float, less: float | None = None) -> Interval:
    """Return the interval of the last part's mean reward; or of this plus its mean gap, less so many gaps of the last iterate."""
    rewards, steps = record.mean_rewards[..., record.tail_start :], record.step_sizes[record.tail_start :]
    constant = np.asarray(np.ptp(rewards, axis=-1) == 0.0)
    # sum_i (R_i - J(theta_{i-1})) is a martingale, so the error of the mean is s/sqrt(m) (docs/derivations.md, section 13.2).
    error = np.where(constant, np.nan, shifted(rewards, -1).std(axis=-1, ddof=1)) / np.sqrt(rewards.shape[-1])
    mean = shifted_mean(rewards, -1)
    if less is not None:
        # A gap sum_k w_k chi^2_1 has mean sum_k w_k and variance 2 sum_k w_k^2; its mean falls with the step.
        weights = gap_weights(record)
        # J(theta*) is the mean plus (mean eta/eta_n) sum w, and J(theta_n) is the mean plus (mean eta/eta_n - 1) sum w.
        # The latter has 2 sum w^2 more variance (docs/derivations.md, section 13.2).
        mean = mean + weights.sum(axis=-1) * (steps.mean() / steps[-1] - less)
        error = np.sqrt(error**2 + 2.0 * (weights**2).sum(axis=-1)) if less else error
    return around(mean, error, check_level(level), single=constant.ndim == 0, of="the mean rewards of the last part")
