"""Variance of the gradient as a function of a prompt-only baseline."""

from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.problem import Moments
from grpo_theory.problem.bandit import LARGEST_REWARD
from grpo_theory.validation import as_numbers, check_finite, check_within, typed


@typed
def baseline_trace(moments: Moments, baseline: ArrayLike) -> Array:
    """Return the trace of Cov(W (Z - C(x)) | x) for a baseline C that depends on the prompt alone.

    Theorem (Greensmith et al. 2004; docs/derivations.md, section 3).  For every C(x) with finite moments,

        trace Cov(W (Z - C) | x) = trace Sigma_oracle + E||W||^2 [(C - b*)^2 - (V - b*)^2],

    with b* = E[||W||^2 Z | x] / E[||W||^2 | x].  So C beats V at x exactly when |C - b*| < |V - b*|. For V > 0, no baseline at
    all (C = 0) beats the value baseline exactly when b*/V < 1/2.

    Parameters
    ----------
    moments : Moments
        Exact moments at theta.
    baseline : array_like, broadcastable to shape (M,)
        C(x), in units of reward.

    Returns
    -------
    ndarray, shape (M,)
        Divide by G for the variance of one group's estimate given its prompt.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> moments = gt.moments(problem, problem.theta)
    >>> [float(gt.theory.baseline_trace(moments, baseline).round(4)[0]) for baseline in (0.0, moments.value)]
    [0.1827, 0.0983]
    """
    best = moments.optimal_baseline
    baseline = as_numbers("baseline", baseline)
    check_finite("baseline", baseline)
    check_within("baseline", baseline, -LARGEST_REWARD, LARGEST_REWARD)
    if baseline.ndim and baseline.shape[-1] not in (1, best.size):
        raise ValueError(f"baseline must be a number or have shape (..., {best.size}), one for each prompt, got {baseline.shape}")
    excess = (baseline - best) ** 2 - (moments.value - best) ** 2
    return moments.oracle_trace + moments.score_power * excess
