"""What a pilot tells of the gradient: the three constants of its error, and how large it is beside that error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, stdtrit

from grpo_theory.intervals.interval import Interval, check_level, quotient_limits, tail_quantiles
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.intervals.u_statistics import PromptTerms, prompt_terms
from grpo_theory.theory import GroupSizeLaw, mse_weights
from grpo_theory.validation import Array, as_count, typed


@dataclass(frozen=True, eq=False)
class ErrorConstants:
    """Estimates of c1, c2 and c3: the error of B prompts with G responses each is c1/B + c2/(BG) + c3/(BG(G-1)).

    Attributes
    ----------
    law : GroupSizeLaw
        The unbiased estimates; with another baseline than the leave-one-out mean, of its own c2 and c3.
    likely : GroupSizeLaw
        The estimates that the recommendation rests on, all above 0.
    covariance : ndarray, shape (3, 3)
        Of `law`.
    low, high : ndarray, shape (3,)
        Limits of c1, c2 and c3, not below 0.
    pilot : int
        The number of prompts that the estimates come from.
    level : float
    student_coverage : float
        How often Student's limits would hold if the prompts' terms were drawn from a lognormal law as skewed as they are. It is
        the least over the three constants, and the level where influences are not given.
    """

    law: GroupSizeLaw
    likely: GroupSizeLaw
    covariance: Array
    low: Array
    high: Array
    pilot: int
    level: float
    student_coverage: float

    @property
    def standard_errors(self) -> Array:
        """Of the unbiased estimates, shape (3,)."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    @property
    def alike(self) -> bool:
        """Whether the data do not rule out that c1 is 0: gradients so alike that a larger group is always better."""
        return bool(self.law.c1 - prompt_quantile(self.pilot, self.level) * self.standard_errors[0] <= 0.0)


def pilot_terms(rollouts: Groups) -> PromptTerms:
    """Return what each prompt of one batch says of the error's constants."""
    if not rollouts.single:
        raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {rollouts.rewards.shape}")
    return prompt_terms(rollouts, 3)


def likely_constants(law: GroupSizeLaw, covariance: Array) -> GroupSizeLaw:
    """Return the mean of each constant given its estimate and that it is not below 0: normal errors, a flat prior.

    The mean is c + s phi(c/s)/Phi(c/s) with the standard error s. It hardly moves an estimate of several standard errors, turns
    one of 0 into 0.8 standard errors, and is never below 0. So an estimate of c1 that is below 0 by chance does not ask for a
    single group.
    """
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    return GroupSizeLaw(*(float(value) for value in likely_values(vector(law), errors)))


def likely_values(estimates: Array, errors: Array) -> Array:
    """Return means given estimates, their standard errors, and that none is below 0: normal errors, a flat prior."""
    ratio = np.divide(estimates, errors, out=np.full(np.shape(estimates), np.inf), where=errors > 0.0)
    with np.errstate(over="ignore"):
        excess = np.exp(-0.5 * ratio**2 - log_ndtr(ratio)) / np.sqrt(2.0 * np.pi)
    return np.asarray(np.maximum(estimates + errors * excess, 0.0))


def vector(law: GroupSizeLaw) -> Array:
    """Return c1, c2 and c3 as an array, shape (3,)."""
    return np.array([law.c1, law.c2, law.c3], dtype=np.float64)


def prompt_quantile(prompts: int, level: float) -> float:
    """Return the upper quantile of Student's statistic for two-sided limits from so many prompts."""
    return float(stdtrit(prompts - 1, (1.0 + level) / 2.0))


@typed
def signal_to_noise(
    rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95, *, sketch_width: int | None = None
) -> Interval:
    """Return an interval of ||g||^2 over the mean squared error of the leave-one-out gradient at a batch and group size.

    At 1 the noise of one step is as large as the gradient itself. The products of different prompts' gradient estimates are
    unbiased for ||g||^2, so that the estimate can be below 0. The limits are Fieller's (1954), cut at 0, with variances from
    deleting one prompt at a time. Their quantiles allow for gradients whose lengths differ much between prompts
    (`grpo_theory.intervals.interval`). A lower limit of 0 says that the data do not tell the gradient from 0.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        One batch of at least 3 prompts, 4 responses each.
    batch_size, group_size : int
        Of the training step that is asked about: at least 1 and 2.
    level : float, default 0.95
    sketch_width : int, optional
        How many numbers a sketch has, if the scores are sketches. The limits then take in the error of the one map that makes
        all sketches. Its relative variance is at most 2/width, for ||g||^2 and for the error, which is a trace. The two errors
        have a correlation of 0 or more, and are taken for uncorrelated (docs/derivations.md, section 36).

    Returns
    -------
    Interval
        The upper limit is infinite where the data do not tell the error from 0. The standard error is the delta method's.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> found = gt.plan.signal_to_noise(rollouts, batch_size=128, group_size=8)
    >>> round(float(found.estimate), 1)
    2.3
    """
    weights = mse_weights(as_count("batch_size", batch_size), as_count("group_size", group_size, 2))
    return signal_of(pilot_terms(rollouts), weights, check_level(level), sketch_width)


def signal_of(terms: PromptTerms, weights: Array, level: float, sketch_width: int | None) -> Interval:
    """Return the interval from what each prompt says of c1 and a baseline's c2 and c3, with their weights (3,) in the error."""
    within = weights[0] * terms.power + weights[1] * terms.c2 + weights[2] * terms.c3
    # With this first term at 0 the first "component" is minus the products of different prompts' estimates: -||g||^2.
    parts = PromptTerms(terms.gradients, np.zeros_like(terms.power), within, terms.c3)
    power, covariance = -float(parts.components().c1), parts.covariance()
    from_power = np.array([-1.0, 0.0, 0.0])
    from_error = np.array([weights[0], 1.0, 0.0])
    error = float(within.mean()) - float(weights[0]) * power
    variances = (
        float(from_power @ covariance @ from_power),
        float(from_power @ covariance @ from_error),
        float(from_error @ covariance @ from_error),
    )
    influences = parts.influences()
    return signal_interval(
        (power, error), variances, lambda ratio: (from_power - ratio * from_error) @ influences, level, sketch_width
    )


def signal_interval(
    means: tuple[float, float],
    variances: tuple[float, float, float],
    influences: Callable[[float], Array],
    level: float,
    sketch_width: int | None,
) -> Interval:
    """Return the interval of a power over an error, from estimates and v_pp, v_pe and v_ee.

    `influences` returns what each prompt adds to the power less a multiple of the error, shape (B,).
    """
    (power, error), (v_pp, v_pe, v_ee) = means, variances
    if sketch_width is not None:
        share = 2.0 / as_count("sketch_width", sketch_width)
        v_pp, v_ee = v_pp + share * max(power, 0.0) ** 2, v_ee + share * max(error, 0.0) ** 2
    likely = max(power, 0.0) / error if error > 0.0 else 0.0
    lower, upper = tail_quantiles(influences(likely), level)
    low, high = quotient_limits(max(power, 0.0), max(error, 0.0), (v_pp, v_pe, v_ee), lower, upper)
    if not error > 0.0:
        return Interval(np.asarray(np.nan), np.asarray(np.nan), low, high, level)
    ratio = power / error
    spread = v_pp - 2.0 * ratio * v_pe + ratio**2 * v_ee
    return Interval(np.asarray(ratio), np.sqrt(max(spread, 0.0)) / np.asarray(error), low, high, level)
