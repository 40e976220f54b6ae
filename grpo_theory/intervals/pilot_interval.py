"""Confidence intervals of the error's components, and of the error itself, from a pilot batch."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.intervals.bootstrap import bootstrap_quantiles, draw_resamples
from grpo_theory.intervals.components import PromptTerms, prompt_terms
from grpo_theory.intervals.interval import Interval, check_level, student_interval, vectorized
from grpo_theory.samples import Groups
from grpo_theory.simulate.draw.streams import Rng
from grpo_theory.theory import mse_weights
from grpo_theory.validation import typed

OF = "the prompts' terms of the error"


def _not_negative(interval: Interval) -> Interval:
    """Cut the limits at 0, below which the truth cannot lie."""
    low, high = np.maximum(interval.low, 0.0), np.maximum(interval.high, 0.0)
    return Interval(interval.estimate, interval.standard_error, low, high, interval.level)


def _combinations(terms: PromptTerms, weights: Array) -> tuple[Array, Array]:
    """Return estimates and jackknife standard errors of combinations of c1, c2 and c3 with weights (L, 3), shapes (..., L)."""
    law = terms.components()
    estimate = np.stack([law.c1, law.c2, law.c3], axis=-1) @ weights.T
    return estimate, np.sqrt(np.einsum("li,...ij,lj->...l", weights, terms.covariance(), weights))


def _student(terms: PromptTerms, weights: Array, level: float, single: bool) -> Interval:
    estimate, error = _combinations(terms, weights)
    return student_interval(estimate, error, terms.power.shape[-1] - 1, level, single=single, of=OF)


def _jackknife(rollouts: Groups, weights: Array, level: float) -> Interval:
    return _not_negative(_student(prompt_terms(rollouts, 3), weights, level, rollouts.single))


def _bootstrap(rollouts: Groups, weights: Array, level: float, resamples: int, rng: Rng | None) -> Interval:
    """As `_jackknife`, with the quantiles of resamples in place of Student's."""
    terms = prompt_terms(rollouts, 3)
    base = _student(terms, weights, level, rollouts.single)
    drawn = draw_resamples(rollouts.batch_size, resamples, level, rng)
    every = np.broadcast_to(weights, (*base.estimate.shape[:-1], *weights.shape))
    lower, upper = bootstrap_quantiles(terms, every, drawn)
    error = np.where(np.isnan(base.low), np.nan, base.standard_error)
    low, high = base.estimate - upper * error, base.estimate - lower * error
    return _not_negative(Interval(base.estimate, base.standard_error, low, high, base.level))


def _only(interval: Interval) -> Interval:
    """Drop the last axis, of length 1."""
    return Interval(
        interval.estimate[..., 0], interval.standard_error[..., 0], interval.low[..., 0], interval.high[..., 0], interval.level
    )


def _error_weights(batch_size: int, group_size: int) -> Array:
    weights = mse_weights(batch_size, group_size)
    if weights.ndim != 1:
        raise ValueError(f"batch_size and group_size must be single numbers, got {batch_size!r} and {group_size!r}")
    return weights[None]


@vectorized
@typed
def components_jackknife(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of each of c1, c2 and c3 in MSE = c1/B + c2/(BG) + c3/(BG(G-1)).

    Unbiased estimates (`estimate_group_size_law`), the jackknife that deletes one prompt at a time, Student's t with B - 1
    degrees of freedom, limits cut at 0.

    Coverage: nominal as B grows. The estimates are quadratic or quartic in scores, so skewed: below nominal at small B, on the
    upper side above all. Where c1 = 0 its estimate is a degenerate U-statistic, the jackknife's variance is twice too large, and
    coverage is above nominal.
    Measured (study "coverage"): c2 and c3 near nominal with 64 prompts, c1 short; all short with 16, and on near-deterministic
    policies. Not to be used where success is rare.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (..., 3), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which a component does not vary between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts, law = pilot.take(pilot.sample(problem, 0, 1), 0), gt.group_size_law(problem, problem.theta)
    >>> gt.intervals.components_jackknife(rollouts).covers([law.c1, law.c2, law.c3]).tolist()
    [True, True, True]
    """
    return _jackknife(rollouts, np.eye(3), check_level(level))


@vectorized
@typed
def components_bootstrap(rollouts: Groups, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None) -> Interval:
    """Interval of each of c1, c2 and c3, with quantiles from a bootstrap-t over prompts in place of Student's.

    Otherwise as `components_jackknife`. B prompts are drawn with replacement, and the studentised statistic is recomputed; its
    quantiles follow the skewness that t's do not. All datasets along the leading axes share the resamples.

    Coverage: nominal as B grows, with an error of smaller order in B than the jackknife's where the component is above 0. Where
    c1 = 0 its estimate is degenerate and no bootstrap of it is consistent.
    Measured (study "coverage"): better than the jackknife for c2 and c3, which it covers; not for c1, where it is short.

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
        Shape (..., 3), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On too few resamples, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> gt.intervals.components_bootstrap(rollouts, resamples=99, rng=0).low.shape
    (3,)
    """
    return _bootstrap(rollouts, np.eye(3), check_level(level), resamples, rng)


@vectorized
@typed
def mse_jackknife(rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95) -> Interval:
    """Interval of the leave-one-out estimator's mean squared error at any batch and group size.

    The pilot's own sizes need not be those asked about. Otherwise as `components_jackknife`: the error is linear in c1, c2, c3.

    Coverage: as `components_jackknife`. It is best near the pilot's own group size; far below it c3 rules, and far above it c1,
    which is the hardest to estimate.
    Measured (study "coverage") for the error at B = 256, G = 16: short with 64 prompts, more so with 16, most where success is
    rare.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    batch_size, group_size : int
        What the error is asked at: at least 1 and 2.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On sizes out of range, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> truth = gt.gradient_mse(problem, problem.theta, "rloo", batch_size=64, group_size=16)
    >>> bool(gt.intervals.mse_jackknife(rollouts, batch_size=64, group_size=16).covers(truth))
    True
    """
    return _only(_jackknife(rollouts, _error_weights(batch_size, group_size), check_level(level)))


@vectorized
@typed
def mse_bootstrap(
    rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None
) -> Interval:
    """Interval of the leave-one-out estimator's mean squared error, with quantiles from a bootstrap-t over prompts.

    Otherwise as `mse_jackknife`; the resamples as in `components_bootstrap`.

    Coverage: nominal as B grows, with an error of smaller order in B than the jackknife's.
    Measured (study "coverage") for the error at B = 256, G = 16: nearer to nominal than the jackknife; short with 16 prompts.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    batch_size, group_size : int
        What the error is asked at: at least 1 and 2.
    level : float, default 0.95
    resamples : int, default 999
        R, at least 2/(1 - level) - 1.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Interval
        Shape (...), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On sizes out of range, too few resamples, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> interval = gt.intervals.mse_bootstrap(rollouts, batch_size=64, group_size=16, resamples=99, rng=0)
    >>> bool(interval.low < interval.high)
    True
    """
    return _only(_bootstrap(rollouts, _error_weights(batch_size, group_size), check_level(level), resamples, rng))
