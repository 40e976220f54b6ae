"""Confidence intervals of the optimal group size G* = 1 + sqrt(c3/c1) from a pilot batch."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from grpo_theory.arrays import Array
from grpo_theory.intervals.bootstrap import bootstrap_quantiles, draw_resamples
from grpo_theory.intervals.components import prompt_terms
from grpo_theory.intervals.interval import Interval, check_level, quotient_limits, vectorized
from grpo_theory.samples import Groups
from grpo_theory.simulate.draw.streams import Rng
from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import typed

UNBOUNDED = (
    "the upper limit is infinite because the data do not rule out c1 = 0, prompts that do not differ in gradient. A larger "
    "group is then always better. More prompts would tell"
)


def _log_ratio_error(law: GroupSizeLaw, covariance: Array) -> Array:
    """Return the standard error of log(c3/c1) by the delta method; infinite where an estimate is not above 0."""
    proper = (law.c1 > 0.0) & (law.c3 > 0.0)
    # "where" computes both branches; the 1 keeps the one that is not used free of divisions by 0.
    c1, c3 = np.where(proper, law.c1, 1.0), np.where(proper, law.c3, 1.0)
    slopes = np.stack([-1.0 / c1, np.zeros_like(c1), 1.0 / c3], axis=-1)
    variance = np.einsum("...i,...ij,...j->...", slopes, covariance, slopes)
    return np.where(proper, np.sqrt(np.maximum(variance, 0.0)), np.inf)


def _interval(law: GroupSizeLaw, covariance: Array, ratios: tuple[Array, Array], level: float, single: bool) -> Interval:
    """Turn limits of c3/c1 into limits of G*; the standard error is the delta method's."""
    degenerate = ~(covariance[..., 0, 0] + covariance[..., 2, 2] > 0.0)
    if single and degenerate:
        raise ValueError("the prompts' terms of the error do not vary: they say nothing about the optimal group size")
    optimum, log_error = np.asarray(law.optimum), _log_ratio_error(law, covariance)
    proper = np.isfinite(log_error)
    error = np.where(proper, (np.where(proper, optimum, 1.0) - 1.0) / 2.0 * np.where(proper, log_error, 0.0), np.inf)
    low, high = (np.where(degenerate, np.nan, 1.0 + np.sqrt(ratio)) for ratio in ratios)
    return Interval(optimum, error, low, high, level, UNBOUNDED if np.isinf(high).any() else "")


@vectorized
@typed
def group_size_jackknife(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) by the delta method on log(c3/c1), variances from deleting one prompt at a time.

    The logarithm keeps the limits above 1, and its error hardly grows with c1's estimate. Where the estimate of c1 (or c3) is not
    above 0 the delta method cannot be used, and the interval is [1, inf].

    Coverage: nominal as B grows if c1 > 0. Do not trust the upper limit unless c1's estimate is several standard errors above 0.
    At c1 = 0 (G* infinite) the interval covers only when the estimate of c1 is below 0, however large B. `group_size_fieller`
    covers there too.
    Measured (study "coverage"): nominal on a half-trained policy; short on near-deterministic ones, where success is rare, and
    most of all at c1 = 0.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> bool(gt.intervals.group_size_jackknife(rollouts).covers(gt.group_size_law(problem, problem.theta).optimum))
    True
    """
    level = check_level(level)
    terms = prompt_terms(rollouts, 3)
    law, covariance = terms.components(), terms.covariance()
    log_error = _log_ratio_error(law, covariance)
    proper = np.isfinite(log_error)
    half = stdtrit(rollouts.batch_size - 1, (1.0 + level) / 2.0) * np.where(proper, log_error, 0.0)
    ratio = np.where(proper, law.c3 / np.where(proper, law.c1, 1.0), 0.0)
    with np.errstate(over="ignore"):
        low, high = np.where(proper, ratio * np.exp(-half), 0.0), np.where(proper, ratio * np.exp(half), np.inf)
    return _interval(law, covariance, (low, high), level, rollouts.single)


def ratio_limits(
    law: GroupSizeLaw, covariance: Array, lower_quantile: ArrayLike, upper_quantile: ArrayLike
) -> tuple[Array, Array]:
    """Return the least and the greatest of the ratios r >= 0 with lower <= (c3 - r c1)/se(r) <= upper.

    Here ``se(r)^2 = v33 - 2 r v13 + r^2 v11``. Estimates below 0 are replaced by 0, the nearest value that the truth can have.
    The lower limit is 0 where ``c3 <= upper sqrt(v33)``, and the upper one is inf where ``c1 <= -lower sqrt(v11)``.

    The limits are the ends of the hull of these ratios, the least interval that contains them. The set of ratios can have a gap,
    where the two estimates are strongly correlated and neither 0 nor inf is rejected (docs/derivations.md, section 10). The hull
    then contains rejected ratios too, and covers at least as often as the set.

    Parameters
    ----------
    law : GroupSizeLaw
        Shape (...).
    covariance : ndarray, shape (..., 3, 3)
    lower_quantile, upper_quantile : array_like, broadcast to (...)
        lower <= 0 <= upper.
    """
    v11, v13, v33 = covariance[..., 0, 0], covariance[..., 0, 2], covariance[..., 2, 2]
    c1, c3 = np.maximum(law.c1, 0.0), np.maximum(law.c3, 0.0)
    return quotient_limits(c3, c1, (v33, v13, v11), lower_quantile, upper_quantile)


@vectorized
@typed
def group_size_fieller(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) by inverting the t tests of c3 - r c1 = 0 (Fieller 1954), variances from the jackknife.

    This is the least interval that contains all ratios r that are not rejected, with B - 1 degrees of freedom. Those ratios need
    not form an interval themselves. Where they have a gap, the gap is covered too, which is conservative. The upper limit is
    inf where c1 = 0 is not rejected: then the data do not bound the optimal group size.

    Coverage: nominal as B grows if c1 > 0. It is at least 1 - (1 - level)/2 at c1 = 0 (G* infinite), because no ratio of
    estimates is taken. At small B it is that of a t interval on skewed terms, which misses below more often than above. Any set
    with sound coverage near c1 = 0 must be unbounded with positive probability (Gleser and Hwang 1987).
    Measured (study "coverage"): a little short with 64 prompts, more so with 16; conservative at c1 = 0. Where success is rare
    the limits are nearly always infinite.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> bool(gt.intervals.group_size_fieller(rollouts).covers(gt.group_size_law(problem, problem.theta).optimum))
    True
    """
    level = check_level(level)
    terms = prompt_terms(rollouts, 3)
    law, covariance = terms.components(), terms.covariance()
    t = stdtrit(rollouts.batch_size - 1, (1.0 + level) / 2.0)
    return _interval(law, covariance, ratio_limits(law, covariance, -t, t), level, rollouts.single)


@vectorized
@typed
def group_size_bootstrap(rollouts: Groups, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) as `group_size_fieller`, with quantiles from a bootstrap-t over prompts.

    B prompts are drawn with replacement, and ``(c3* - r c1*)/se*(r)`` is recomputed at the estimated ratio r. It is centred at
    the mean of the resampled U-statistic. That mean includes the products of a prompt's estimate with itself, because a prompt
    can be drawn twice. The quantiles follow the skewness, as t's do not. All datasets along the leading axes share the resamples.

    Coverage: as `group_size_fieller`, with an error of smaller order in B where c1 > 0. Where c1 = 0 the product term is
    degenerate and no bootstrap of it is consistent. Quantiles from R resamples add a random error of about sqrt(p(1-p)/R) to each
    tail's probability p. With very few prompts (B below about 16) resamples repeat prompts too often to be of use.
    Measured (study "coverage"): short with 16 prompts, on near-deterministic policies and where success is rare.
    `group_size_fieller` is safer.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95
    resamples : int, default 999
        R, at least 2/(1 - level) - 1.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts, responses or resamples, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> interval = gt.intervals.group_size_bootstrap(rollouts, resamples=99, rng=0)
    >>> bool(1.0 <= interval.low < interval.high)
    True
    """
    level = check_level(level)
    terms = prompt_terms(rollouts, 3)
    drawn = draw_resamples(rollouts.batch_size, resamples, level, rng)
    law, covariance = terms.components(), terms.covariance()
    angle = np.arctan2(np.maximum(law.c3, 0.0), np.maximum(law.c1, 0.0))
    weights = np.stack([-np.sin(angle), np.zeros_like(angle), np.cos(angle)], axis=-1)
    quantiles = (side[..., 0] for side in bootstrap_quantiles(terms, weights[..., None, :], drawn))
    limits = ratio_limits(law, covariance, *quantiles)
    return _interval(law, covariance, limits, level, rollouts.single)
