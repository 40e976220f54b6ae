"""What the logged responses are worth: how many carry signal, and how many independent ones a mean reward rests on."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.bounded_mean import mean_limits
from grpo_theory.samples import RewardCounts
from grpo_theory.validation import typed


@dataclass(frozen=True, eq=False)
class RewardVariance:
    """The variance of rewards, split into that between prompts and that within them, both estimated without bias.

    Attributes
    ----------
    between : float
        The variance of the prompts' expected rewards; may come out below 0 where it is small.
    within : float
        The mean variance of a prompt's rewards; with binary rewards the mean of p (1 - p).
    """

    between: float
    within: float

    @property
    def correlation(self) -> float:
        """The share of the variance that lies between prompts, which is the correlation of two rewards of a prompt."""
        total = self.between + self.within
        return self.between / total if total > 0.0 else 0.0


@dataclass(frozen=True, eq=False)
class SampleSize:
    """What N logged responses are worth.

    Attributes
    ----------
    prompts, responses : int
    mixed_prompts, mixed_responses : int
        Of groups whose rewards are not all equal, as they were logged: the others give most estimators no gradient.
    mean_reward : Interval
        The mean over prompts of the expected reward; every prompt counts alike, however many responses it has.
    variance : RewardVariance or None
        None if no prompt has two responses.
    design_effect : float
        By how much the variance of the mean reward is larger than that of so many independent responses: 1 + (G - 1) times the
        correlation if all groups have size G. NaN without a variance.
    effective_responses : float
        The number of independent responses that would tell the mean reward as well. NaN without a variance.
    """

    prompts: int
    responses: int
    mixed_prompts: int
    mixed_responses: int
    mean_reward: Interval
    variance: RewardVariance | None
    design_effect: float
    effective_responses: float


@typed
def split_variance(counts: RewardCounts) -> RewardVariance:
    """Return the variance of rewards between and within prompts, without bias; any rewards, groups of any sizes.

    Within: the mean of the groups' variances (divisor n - 1) over prompts of at least two responses. Between: the variance of the
    groups' means less what sampling adds to it, the mean of the within variance over n.

    Raises
    ------
    ValueError
        On fewer than two prompts, and where no prompt has two responses.
    """
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for a variance between them, got 1")
    own, pairs = _own_variances(counts), counts.sizes >= 2
    if not pairs.any():
        raise ValueError("counts must have a prompt with two responses: one a prompt does not tell the two variances apart")
    within = float(own[pairs].mean())
    noise = np.where(pairs, own, within) / counts.sizes
    return RewardVariance(float(counts.means.var(ddof=1) - noise.mean()), within)


def _own_variances(counts: RewardCounts) -> Array:
    """Return the variance (divisor n - 1) of each prompt's rewards, 0 for a single one."""
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    squares = counts.counts.data * (counts.values[counts.counts.indices] - counts.means[rows]) ** 2
    return np.bincount(rows, weights=squares, minlength=counts.prompts) / np.maximum(counts.sizes - 1, 1)


@typed
def effective_sample_size(counts: RewardCounts, level: float = 0.95) -> SampleSize:
    """Return what the logged responses are worth: of any rewards, in groups of any sizes.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts.
    level : float, default 0.95

    Returns
    -------
    SampleSize
        The interval of the mean reward is Korn and Graubard's, between the least and the greatest reward that came.

    Raises
    ------
    ValueError
        On fewer than two prompts.
    """
    level = check_level(level)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
    means, total = counts.means, int(counts.sizes.sum())
    low, high = mean_limits(means, float(counts.values[0]), float(counts.values[-1]), total, level)
    error = means.std(ddof=1) / np.sqrt(counts.prompts)
    interval = Interval(np.array(means.mean()), np.array(error), np.array(low), np.array(high), level)
    variance, effect = None, np.nan
    if (counts.sizes >= 2).any():
        variance = split_variance(counts)
        effect = _design_effect(counts, variance)
    mixed = ~counts.uniform
    return SampleSize(
        counts.prompts, total, int(mixed.sum()), int(counts.sizes[mixed].sum()), interval, variance, effect, total / effect
    )


def _design_effect(counts: RewardCounts, variance: RewardVariance) -> float:
    """Return the variance of the mean of the prompts' means over that of as many independent responses."""
    correlation = float(np.clip(variance.correlation, 0.0, 1.0))
    noise = float((1.0 / counts.sizes).mean())
    return float((correlation + (1.0 - correlation) * noise) / counts.prompts * counts.sizes.sum())
