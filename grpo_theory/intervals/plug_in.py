"""Plug-in intervals from one training run: drift and noise estimated, the limit covariance computed from them."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from grpo_theory.arrays import Array
from grpo_theory.intervals.interval import Ellipsoid, Interval, check_level, normal_quantile, vectorized
from grpo_theory.intervals.local_model import Influence, LocalModel, as_contrasts, check_identifiable, fit_local_model
from grpo_theory.samples import TrainingRecord
from grpo_theory.theory import WeightedChiSquare
from grpo_theory.validation import typed


@vectorized
@typed
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
    model = fit_local_model(record)
    return _interval(model, model.last(), record.path[..., -1, :], record, level, contrasts)


@vectorized
@typed
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
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Power(2.0, 0.6), **sizes, rng=0))
    >>> gt.intervals.averaged_iterate(record).covers(optimum).shape
    (1, 3)
    """
    model = fit_local_model(record)
    return _interval(model, model.average(), record.average, record, level, contrasts)


@vectorized
@typed
def last_iterate_ellipsoid(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike) -> Ellipsoid:
    """Return a joint confidence set for linear functionals of the maximiser from the last iterate.

    The ellipsoid of the normal law whose margins are those of `last_iterate`; valid where that is.

    Parameters
    ----------
    record : TrainingRecord
        With a Hessian.
    level : float, default 0.95
    contrasts : array_like, shape (J, d)
        Linearly independent functionals, none with a part along a direction in which the objective is flat.

    Returns
    -------
    Ellipsoid
        Of J dimensions, over (...).

    Raises
    ------
    ValueError
        As `last_iterate`; and if the functionals are not linearly independent.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> gt.intervals.last_iterate_ellipsoid(record, contrasts=np.eye(3)).covers(optimum).tolist()
    [True]
    """
    level = check_level(level)
    model = fit_local_model(record)
    functionals = as_contrasts(contrasts, record.dimension)
    rank = int(np.linalg.matrix_rank(functionals))
    if rank < len(functionals):
        raise ValueError(f"contrasts must be linearly independent, got {len(functionals)} rows of rank {rank}")
    centre, covariance = _centred(model, model.last(), record.path[..., -1, :], record)
    check_identifiable(model, functionals)
    along = functionals @ model.directions
    estimate = (along @ centre[..., None])[..., 0]
    spread = along @ covariance @ np.swapaxes(along, -1, -2)
    spread = np.where(np.expand_dims(model.identifies(functionals).all(axis=-1), (-2, -1)), spread, np.nan)
    return Ellipsoid(estimate, spread, np.full(estimate.shape[:-1], chdtri(len(functionals), 1.0 - level)), level)


def _interval(
    model: LocalModel, influence: Influence, point: Array, record: TrainingRecord, level: float, contrasts: ArrayLike | None
) -> Interval:
    """Put normal limits around functionals of the centred point."""
    level = check_level(level)
    functionals = as_contrasts(contrasts, record.dimension)
    check_identifiable(model, functionals)
    centre, covariance = _centred(model, influence, point, record)
    estimate = (functionals @ model.directions @ centre[..., None])[..., 0]
    error = np.sqrt(model.variance(covariance, functionals))
    half = normal_quantile(level) * error
    return Interval(estimate, error, estimate - half, estimate + half, level)


def _centred(model: LocalModel, influence: Influence, point: Array, record: TrainingRecord) -> tuple[Array, Array]:
    """Take what is left of the start out of a point (..., d); return it and its covariance, in the basis."""
    kept = 1.0 - influence.start
    centre = (_in_basis(model, point) - influence.start * _in_basis(model, record.path[..., 0, :])) / kept
    return centre, model.covariance(influence) / kept[..., :, None] / kept[..., None, :]


def _in_basis(model: LocalModel, point: Array) -> Array:
    """Return the components of a point (..., d) along the eigenvectors."""
    return (point[..., None, :] @ model.directions)[..., 0, :]


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
    model = fit_local_model(record)
    influence = model.last()
    # theta_0 - theta* is (theta_0 - theta_n) / (1 - start), up to noise.
    moved = _in_basis(model, record.path[..., 0, :] - record.path[..., -1, :])
    rest = influence.start / (1.0 - influence.start) * moved
    moments = model.covariance(influence) + rest[..., :, None] * rest[..., None, :]
    root = np.sqrt(np.maximum(model.curvatures, 0.0))
    forms = root[..., :, None] * moments * root[..., None, :] / 2.0
    weights = np.linalg.eigvalsh(np.where(model.usable[..., None, None], forms, 0.0))
    return np.where(model.usable[..., None], np.maximum(weights, 0.0), np.nan)


@vectorized
@typed
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
    level = check_level(level)
    weights = gap_weights(record)
    usable = np.isfinite(weights).all(axis=-1) & (np.nan_to_num(weights) > 0.0).any(axis=-1)
    high = np.full(usable.shape, np.nan)
    if usable.any():
        high[usable] = WeightedChiSquare(weights[usable]).ppf(level)
    spread = np.sqrt(2.0 * (weights**2).sum(axis=-1))
    return Interval(weights.sum(axis=-1), spread, np.where(np.isnan(high), np.nan, 0.0), high, level)
