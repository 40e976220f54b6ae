"""The three constants of the gradient's error, as a pilot tells them: estimates, their covariance, and limits."""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, stdtrit

from grpo_theory.arrays import Array
from grpo_theory.intervals.components import PromptTerms, prompt_terms
from grpo_theory.samples import Groups
from grpo_theory.theory import GroupSizeLaw


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
        How often Student's limits of the constants would hold were the prompts' terms draws from a lognormal law as skewed as
        they are; of the constant for which that is least. The level where influences are not given.
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
        return bool(self.law.c1 - student_quantile(self.pilot, self.level) * self.standard_errors[0] <= 0.0)


def pilot_terms(rollouts: Groups) -> PromptTerms:
    """Return what each prompt of one batch says of the error's constants."""
    if not rollouts.single:
        raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {rollouts.rewards.shape}")
    return prompt_terms(rollouts, 3)


def likely_constants(law: GroupSizeLaw, covariance: Array) -> GroupSizeLaw:
    """Return the mean of each constant given its estimate and that it is not below 0: normal errors, a flat prior.

    c + s phi(c/s)/Phi(c/s) with the standard error s. It hardly moves an estimate of several standard errors, turns one of 0 into
    0.8 standard errors, and is never below 0: an estimate of c1 that is below 0 by chance must not ask for a single group.
    """
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    estimates = vector(law)
    ratio = np.divide(estimates, errors, out=np.full(3, np.inf), where=errors > 0.0)
    with np.errstate(over="ignore"):
        excess = np.exp(-0.5 * ratio**2 - log_ndtr(ratio)) / np.sqrt(2.0 * np.pi)
    return GroupSizeLaw(*(float(value) for value in np.maximum(estimates + errors * excess, 0.0)))


def vector(law: GroupSizeLaw) -> Array:
    """Return c1, c2 and c3 as an array, shape (3,)."""
    return np.array([law.c1, law.c2, law.c3], dtype=np.float64)


def student_quantile(prompts: int, level: float) -> float:
    """Return the upper quantile of Student's statistic for two-sided limits from so many prompts."""
    return float(stdtrit(prompts - 1, (1.0 + level) / 2.0))
