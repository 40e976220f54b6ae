"""Effective sample size: how many logged responses carry signal, and how many independent ones they correspond to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.intervals.rollout_intervals import effective_interval
from grpo_theory.plan.average import Reference, Terms, clipped, mean_interval, stacked, terms_of
from grpo_theory.plan.brackets import RateFunction, bracket
from grpo_theory.plan.success_rates import Cells, likeliest_law
from grpo_theory.validation import Array, Integers, as_count, typed


@dataclass(frozen=True, eq=False)
class RewardVariance:
    """The variance of rewards, split into that between prompts and that within them, both estimated without bias.

    Attributes
    ----------
    between : float
        The variance of the prompts' expected rewards; may come out below 0 where it is small.
    within : float
        The mean variance of a prompt's rewards; with binary rewards the mean of p (1 - p).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> found = gt.plan.split_variance(counts)
    >>> round(found.between, 3), round(found.within, 3)
    (0.097, 0.194)
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
    """The effective sample size of N logged responses.

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
        The variance of the mean reward over that of as many independent responses. It is 1 + (G - 1) times the correlation if
        all groups have size G. NaN without a variance.
    effective_responses : float
        The number of independent responses that would tell the mean reward as well. NaN without a variance.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.effective_sample_size(counts)
    >>> found.responses, round(found.effective_responses)
    (4128, 325)
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
    """Estimate the variance of rewards between and within prompts without bias, for any rewards and group sizes.

    The variance within prompts is the mean of the groups' variances (divisor n - 1) over prompts of at least two responses. The
    variance between them is that of the groups' means less what sampling adds to it, the mean of the within variance over n.

    Raises
    ------
    ValueError
        On fewer than two prompts, and where no prompt has two responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.split_variance(counts)
    >>> round(found.between / (found.between + found.within), 2)  # the share that lies between prompts
    0.38
    """
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for a variance between them, got 1")
    own, pairs = _own_variances(counts), counts.sizes >= 2
    if not pairs.any():
        raise ValueError("counts must have a prompt with two responses: one per prompt does not tell the two variances apart")
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
    """Estimate the mean reward and the effective sample size of logged responses, with any rewards and group sizes.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts.
    level : float, default 0.95

    Returns
    -------
    SampleSize
        The interval of the mean reward is `gt.intervals.value_effective`. Its bounds are 0 and 1 if rewards are, and otherwise
        the least and the greatest reward that came.

    Raises
    ------
    ValueError
        On fewer than two prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> found = gt.plan.effective_sample_size(counts)
    >>> found.mixed_prompts, round(found.design_effect, 2)
    (2, 2.0)
    """
    level = check_level(level)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
    means, total = counts.means, int(counts.sizes.sum())
    least, most = float(counts.values[0]), float(counts.values[-1])
    if np.isin(counts.values, (0.0, 1.0)).all():  # success or not, though all may have been one of them
        least, most = 0.0, 1.0
    interval = Interval(np.array(least), np.array(0.0), np.array(least), np.array(most), level)
    if most > least:
        interval = effective_interval(means, counts.sizes, (least, most), level)
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


@dataclass(frozen=True, eq=False)
class UniformShares:
    """The share of uniform groups at several group sizes.

    Attributes
    ----------
    group_sizes : ndarray of int64, shape (S,)
    interval : Interval
        Shape (S,): the share of groups whose rewards are all equal. The standard error is NaN where it is not measured.
    measured : ndarray, shape (S,)
        The share of the prompts with so many responses. Where it is 1, the estimate is measured and without bias; where it is
        less, the estimate is predicted for the other prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> shares = gt.plan.estimate_uniform_shares(counts, [2, 4, 8])
    >>> shares.interval.estimate.round(2).tolist(), shares.measured.tolist()
    ([0.61, 0.33, 0.25], [1.0, 1.0, 0.0])
    """

    group_sizes: Integers
    interval: Interval
    measured: Array


@typed
def estimate_uniform_shares(counts: RewardCounts, group_sizes: ArrayLike, level: float = 0.95) -> UniformShares:
    """Estimate the share of groups with no signal (all rewards equal) at each group size.

    A prompt with n >= G responses measures its own share without bias: the probability that G of them, drawn without
    replacement, have one reward. For G > n the share is E[X^(G-1)], with X the probability of a response's own reward. Among
    the n - 1 other responses, those with that reward are binomial with rate X. Polynomials of degree n - 1 above and below
    x^(G-1) give limits that hold whatever the law of X (docs/derivations.md, section 34). The estimate is that of the likeliest
    law of X.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts; any number of rewards, groups of any sizes. The prompts are draws from all prompts, and a prompt's
        number of responses says nothing about it that matters here.
    group_sizes : array_like of int, shape (S,)
        Each at least 1.
    level : float, default 0.95
        Of each limit pair by itself, not of all together.

    Returns
    -------
    UniformShares

    Raises
    ------
    ValueError
        On fewer than two prompts, and where no prompt has two responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> shares = gt.plan.estimate_uniform_shares(counts, [2, 8])
    >>> shares.interval.estimate.round(2).tolist()
    [0.71, 0.31]
    """
    level = check_level(level)
    sizes = _group_sizes(group_sizes)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
    if counts.sizes.max() < 2:
        raise ValueError(
            "counts must have a prompt with two responses: one response per prompt says nothing about uniform groups"
        )
    predicted = None
    intervals, measured = [], np.array([(counts.sizes >= size).mean() for size in sizes])
    for size, share in zip(sizes, measured, strict=True):
        terms = share_terms(counts, int(size))
        if share < 1.0:
            predicted = predicted or likeliest_law(_own_reward_cells(counts))
            beyond = float(predicted.weights @ predicted.atoms ** (size - 1.0))
            large = counts.sizes >= size
            intervals.append(mean_interval(terms, (terms.below[large].sum() + (~large).sum() * beyond) / counts.prompts, level))
        else:
            intervals.append(mean_interval(terms, np.nan, level))
    return UniformShares(sizes, clipped(stacked(intervals)), measured)


def unknown_uniform_shares(counts: RewardCounts, group_sizes: ArrayLike, level: float = 0.95) -> UniformShares:
    """Return what is known of the share of uniform groups where groups were chosen by their rewards: the least that it can be.

    Of L rewards a group of G responses is uniform with a chance of at least L^(1-G), whatever the policy. No upper limit but 1
    holds, because prompts of which all groups are uniform are never seen. The estimates are NaN.
    """
    sizes = _group_sizes(group_sizes)
    least, unknown = np.array([float(counts.values.size) ** (1 - size) for size in sizes.tolist()]), np.full(sizes.size, np.nan)
    return UniformShares(sizes, Interval(unknown, unknown, least, np.ones(sizes.size), level), np.zeros(sizes.size))


def _group_sizes(group_sizes: ArrayLike) -> Integers:
    sizes = np.atleast_1d(np.asarray(group_sizes))
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu":
        raise ValueError(f"group_sizes must be whole numbers, shape (S,), got shape {sizes.shape} of type {sizes.dtype}")
    for size in sizes:
        as_count("group_sizes", int(size))
    return sizes.astype(np.int64)


def _own_reward_cells(counts: RewardCounts) -> Cells:
    """Return, for a response drawn from each prompt, how many of the prompt's others share its reward, as cells."""
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    same, sizes = counts.counts.data, counts.sizes[rows]
    useful = sizes >= 2
    return Cells.gather(same[useful] - 1, sizes[useful] - 1, same[useful] / sizes[useful])


def share_terms(counts: RewardCounts, group_size: int, chosen_for: Reference | None = None) -> Terms:
    """Return terms of the prompts whose means are at most, and at least, the share of uniform groups."""
    power, near = group_size - 1.0, chosen_for or Reference.of(counts)
    function = RateFunction(lambda rate: rate**power, ("power", power), (0.0,) * (group_size - 1) + (1.0,))
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    same, sizes = counts.counts.data, counts.sizes[rows]
    values = np.empty((2, same.size))
    reference = near.a + 1.0, near.a, near.prompts
    brackets = {int(size): bracket(function, int(size) - 1, *reference) for size in np.unique(counts.sizes)}
    for size, pair in brackets.items():
        here = sizes == size
        values[:, here] = np.stack(pair)[:, same[here] - 1] * (same[here] / size)
    below, above = (np.bincount(rows, value, counts.prompts).astype(np.float64) for value in values)
    return terms_of(below, above, brackets, int(counts.sizes.sum()))
