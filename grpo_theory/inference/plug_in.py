"""Plug-in intervals from one training run: drift and noise estimated, the limit covariance computed from them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from grpo_theory.inference.interval import Interval, check_level
from grpo_theory.inference.local_model import LocalModel, as_contrasts, check_identifiable, fit_local_model
from grpo_theory.inference.weighted_quantile import weighted_chi_square_ppf
from grpo_theory.simulate.record import TrainingRecord

Array = NDArray[np.float64]


def last_iterate_interval(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None) -> Interval:
    """Return intervals for linear functionals of the maximiser, around the last iterate.

    The covariance is that of linear recursion with the run's own steps, estimated Hessian and estimated noise
    (docs/derivations.md, sections 6 and 7).

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
    Valid for estimators whose mean is the gradient ("reinforce", "oracle", "optimal", "rloo"), as n grows, for steps beta/(i +
    i_0) with beta > 1/(2 lambda_min), and for steps i^-a, a in (1/2, 1).  A run of "dr_grpo" is one of "rloo" with steps (1 -
    1/G) eta: give it those.  With constant steps eta the iterate is centred at theta* only up to O(eta).  Not valid while the
    start is remembered: theta_0 - theta* is still there times prod_i (1 - eta_i lambda).

    Raises
    ------
    ValueError
        See `fit_local_model`; and if a functional has a part along a direction in which the objective is flat.
    """
    model = fit_local_model(record)
    return _normal_interval(model, model.iterate_covariance(), record.path[..., -1, :], level, contrasts)


def averaged_iterate_interval(record: TrainingRecord, level: float = 0.95, *, contrasts: ArrayLike | None = None) -> Interval:
    """Return intervals for linear functionals of the maximiser, around the average of the iterates of the last part.

    The covariance is that of the linear recursion with the run's own steps, so that steps need not fall slowly; for steps i^-a,
    a in (1/2, 1), it tends to H^-1 Gamma H^-1 / m (Polyak and Juditsky 1992; for the last m steps, Rakhlin, Shamir and
    Sridharan 2012).

    Parameters
    ----------
    record, level, contrasts
        As for `last_iterate_interval`.  With ``record.tail = 1`` the average is over all iterates.

    Returns
    -------
    Interval
        Shape (..., J).

    Notes
    -----
    Valid for the same estimators and steps as `last_iterate_interval`.  The average is centred at theta* up to the mean step of
    the last part: where that is not small against its width, the interval is too narrow.  With constant steps it is in the end,
    for the width falls as n^{-1/2} and the bias stays.
    """
    model = fit_local_model(record)
    return _normal_interval(model, model.average_covariance(), record.average, level, contrasts)


def _normal_interval(model: LocalModel, covariance: Array, centre: Array, level: float, contrasts: ArrayLike | None) -> Interval:
    level = check_level(level)
    functionals = as_contrasts(contrasts, centre.shape[-1])
    check_identifiable(model, functionals)
    error = np.sqrt(model.variance(covariance, functionals))
    estimate = centre @ functionals.T
    half = float(ndtri(0.5 + level / 2.0)) * error
    return Interval(estimate, error, estimate - half, estimate + half, level)


def gap_weights(record: TrainingRecord) -> Array:
    """Estimate the weights of the chi-squares in the law of the last iterate's suboptimality gap, shape (..., d).

    They are the eigenvalues of (1/2) A^(1/2) C A^(1/2), A minus the estimated Hessian and C the estimated covariance of the
    iterate; zeros in flat directions, NaN for a run that allows no limit law.
    """
    model = fit_local_model(record)
    root = np.sqrt(np.maximum(model.curvatures, 0.0))
    forms = root[..., :, None] * model.iterate_covariance() * root[..., None, :] / 2.0
    weights = np.linalg.eigvalsh(np.where(model.usable[..., None, None], forms, 0.0))
    return np.where(model.usable[..., None], np.maximum(weights, 0.0), np.nan)


def gap_limit(record: TrainingRecord, level: float = 0.95) -> Interval:
    """Return an upper confidence limit for the suboptimality gap J(theta*) - J(theta_n) of the last iterate.

    The gap's limit law is that of sum_k w_k chi^2_1 (Theorem 8 of arXiv 2603.01162, corrected: docs/derivations.md, section 6);
    the limit is its quantile with estimated weights.

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
    Valid where `last_iterate_interval` is.  The gap is a random number that differs from run to run: the level is the share of
    runs whose gap lies below their limit.
    """
    level = check_level(level)
    weights = gap_weights(record)
    high = weighted_chi_square_ppf(weights, level)
    spread = np.sqrt(2.0 * (weights**2).sum(axis=-1))
    return Interval(weights.sum(axis=-1), spread, np.where(np.isnan(high), np.nan, 0.0), high, level)


for _function in (last_iterate_interval, averaged_iterate_interval, gap_limit):
    _function.vectorized = True  # type: ignore[attr-defined]
