"""Values from the rewards of the run itself: of its last policies, of the learned one, and of the best."""

import numpy as np

from grpo_theory.arrays import Array, Number
from grpo_theory.intervals.interval import Interval, check_level, check_variation, normal_quantile, vectorized
from grpo_theory.intervals.plug_in import gap_weights
from grpo_theory.intervals.u_statistics import shifted, shifted_mean
from grpo_theory.samples import TrainingRecord
from grpo_theory.validation import typed


@vectorized
@typed
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
    mean, error = _tail_mean(record)
    return _normal_interval(mean, error, level)


@vectorized
@typed
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
    mean, error = _tail_mean(record)
    weights = gap_weights(record)
    shift = weights.sum(axis=-1) * (_relative_steps(record) - 1.0)
    return _normal_interval(mean + shift, np.sqrt(error**2 + 2.0 * (weights**2).sum(axis=-1)), level)


@vectorized
@typed
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
    mean, error = _tail_mean(record)
    shift = gap_weights(record).sum(axis=-1) * _relative_steps(record)
    return _normal_interval(mean + shift, error, level)


def _tail_mean(record: TrainingRecord) -> tuple[Array, Array]:
    """Mean of the last part's mean rewards and its standard error, shape (...) each; NaN where these are all equal."""
    rewards = record.mean_rewards[..., record.tail_start :]
    constant = np.asarray(np.ptp(rewards, axis=-1) == 0.0)
    check_variation(constant, single=constant.ndim == 0, of="the mean rewards of the last part")
    error = np.where(constant, np.nan, shifted(rewards, -1).std(axis=-1, ddof=1))
    return shifted_mean(rewards, -1), error / np.sqrt(rewards.shape[-1])


def _relative_steps(record: TrainingRecord) -> float:
    """The mean step of the last part over the last step: what the mean gap there is in units of the last one."""
    return float(record.step_sizes[record.tail_start :].mean() / record.step_sizes[-1])


def _normal_interval(estimate: Number, error: Number, level: float) -> Interval:
    estimate, error = np.asarray(estimate), np.asarray(error)
    half = normal_quantile(check_level(level)) * error
    return Interval(estimate, error, estimate - half, estimate + half, level)
