"""How an estimator's expected step is shared among prompts where rewards are graded, and not success and failure."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.multisets import count_multisets
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.average import clipped, ratio_limit, stacked
from grpo_theory.plan.subgroups import MOST_TERMS, MOST_VALUES, group_table, mean_advantages
from grpo_theory.validation import Array, Flags, as_count, typed

EDGES = (0.2, 0.8)
"""A prompt is low if its mean reward lies in the lowest fifth of the range of the rewards, and high if in the highest."""


@dataclass(frozen=True, eq=False)
class GradedWeights:
    """The shares of an estimator's expected step on prompts of low, middling and high mean reward.

    Attributes
    ----------
    estimator : str
    group_size : int
    step_shares : Interval
        Shape (3,): of the expected step, if a prompt's gradient has a length in proportion to the variance of its rewards.
    prompts : Interval
        Shape (3,): of the prompts.
    used : int
        The prompts with so many responses: the others say nothing about groups of this size.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> rewards = [0.0, 0.5, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 1.0, 0.5]
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(4), 4), rewards)
    >>> found = gt.plan.weigh_graded_prompts(counts, "grpo", 4)
    >>> found.used, found.prompts.estimate.round(2).tolist()
    (4, [0.25, 0.5, 0.25])
    """

    estimator: str
    group_size: int
    step_shares: Interval
    prompts: Interval
    used: int


@typed
def weigh_graded_prompts(counts: RewardCounts, estimator: str | Estimator, group_size: int, level: float = 0.95) -> GradedWeights:
    """Return how the expected step is shared among prompts of low, middling and high mean reward, for any rewards.

    A prompt's share is in proportion to the covariance of a response's advantage with its reward. The covariance is averaged
    over all subgroups of so many of the prompt's responses. It is the length of the prompt's part of the expected step if the
    expected score given the reward is linear in the reward. For success and failure this always holds, and the covariance is
    h'(p) p (1 - p). Prompts are classed by the mean of their logged rewards, which is noisy in small groups.

    Parameters
    ----------
    counts : RewardCounts
        At most 8 different rewards, unless the estimator only subtracts a baseline; at least two prompts with so many responses.
    estimator : str or Estimator
        One whose advantages depend on the rewards of their own group alone.
    group_size : int
    level : float, default 0.95

    Returns
    -------
    GradedWeights

    Raises
    ------
    ValueError
        If there are more rewards, or fewer prompts, or the estimator depends on more than the group's rewards.

    Examples
    --------
    >>> import numpy as np
    >>> import grpo_theory as gt
    >>> prompts = np.repeat(np.arange(3), 4)
    >>> rewards = [0.0, 0.0, 0.0, 0.5, 0.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5]
    >>> counts = gt.RewardCounts.from_rewards(prompts, rewards)
    >>> gt.plan.weigh_graded_prompts(counts, "rloo", 4).step_shares.estimate.round(2)
    array([0.21, 0.57, 0.21])
    """
    level, size = check_level(level), as_count("group_size", group_size, 2)
    large = counts.sizes >= size
    if large.sum() < 2:
        raise ValueError(
            f"counts must have at least 2 prompts with {size} responses for groups of {size}, got {int(large.sum())}"
        )
    named = find(estimator)
    parts = _covariances(counts, named, size, large)
    span = float(counts.values[-1] - counts.values[0])
    place = (counts.means[large] - counts.values[0]) / (span if span > 0.0 else 1.0)
    classes = [place <= EDGES[0], (place > EDGES[0]) & (place <= EDGES[1]), place > EDGES[1]]
    return GradedWeights(
        named.name,
        size,
        clipped(stacked([_share(parts * one, parts, level) for one in classes])),
        clipped(stacked([_share(one.astype(np.float64), np.ones(one.size), level) for one in classes])),
        int(large.sum()),
    )


def _covariances(counts: RewardCounts, estimator: Estimator, size: int, large: Flags) -> Array:
    """Return the mean over subgroups of advantage times (reward less the prompt's mean), of each large prompt."""
    values, held = counts.values, counts.counts[np.flatnonzero(large)].toarray()
    if values.size > MOST_VALUES:
        raise ValueError(
            f"counts must have at most {MOST_VALUES} different rewards for the weights of prompts, got {values.size}. A "
            "tolerance (--reward-tolerance) takes those that differ by little for equal"
        )
    distinct, which = np.unique(held, axis=0, return_inverse=True)
    if len(distinct) * count_multisets(values.size, size) > MOST_TERMS:
        raise ValueError(f"group_size must be smaller for {values.size} different rewards: there are too many groups of {size}")
    by_value = mean_advantages(distinct, group_table(estimator, tuple(values.tolist()), size))
    means = distinct @ values / distinct.sum(axis=1)
    above = distinct * (values - means[:, None])
    return np.asarray((by_value * above).sum(axis=1) / size)[which.ravel()]


def _share(part: Array, whole: Array, level: float) -> Interval:
    """Return the ratio of two means over prompts, with Fieller's limits."""
    estimate = part.mean() / whole.mean() if whole.mean() > 0.0 else np.nan
    error = (part - estimate * whole).std(ddof=1) / np.sqrt(part.size) / whole.mean() if whole.mean() > 0.0 else np.nan
    low, high = (ratio_limit(part, whole, level, above) for above in (False, True))
    return Interval(np.array(estimate), np.array(error), low, high, level)
