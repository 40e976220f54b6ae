"""What rewards alone tell about a set of prompts: how often each prompt got each reward, and whether groups were left out."""

import numpy as np
from scipy.special import comb

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.validation import (
    Array,
    as_number,
)

TINY = 1e-3
"""Rewards of a group that differ by no more than this share of the range of all rewards are remarked on."""
EXPECTED_AT_LEAST = 5.0
"""A log without uniform groups has been filtered if so many were to be expected, by the least chance that any policy has. None
come then with a chance below exp(-5) = 0.7%."""
EXPECTED = 7.0
"""The same where the number expected is itself an estimate."""


def levels(values: Array, tolerance: float) -> Array:
    """Return for each of ascending values, shape (L,), the level that stands for it.

    Levels are formed from the least value on. Values that exceed the first of a level by no more than the tolerance belong to
    that level, and their mean stands for them. Where gaps between clusters of rewards are wider than the tolerance, and clusters
    narrower, levels are the clusters.
    """
    if not as_number("reward_tolerance", tolerance) >= 0.0:
        raise ValueError(f"reward_tolerance must be at least 0, got {tolerance}")
    if tolerance == 0.0:
        return values
    level, numbers, start = -1, np.empty(values.size, dtype=np.int64), -np.inf
    for k, value in enumerate(values.tolist()):
        if value - start > tolerance:
            level, start = level + 1, value
        numbers[k] = level
    means = np.bincount(numbers, weights=values) / np.bincount(numbers)
    return np.asarray(means[numbers])


def filtered(counts: RewardCounts) -> float:
    """Return how many groups with equal rewards were to be expected, if there are none and a filter is the likely reason; else 0.

    With L rewards a group of n responses is uniform with a chance of at least L^(1-n), whatever the policy. With two rewards,
    ``E[p^k (1-p)^(n-k)]`` is log-convex in k. Let N_1 and N_2 be the numbers of groups with one and two successes of n. Then at
    least ``N_1^2/N_2 (n-1)/(2n)`` groups without success are to be expected, whatever the law of p. The same holds at the other
    end. One is added to N_2, against its noise.
    """
    if counts.uniform.any() or counts.values.size < 2:
        return 0.0
    sizes = counts.sizes.astype(np.float64)
    least = float((float(counts.values.size) ** (1.0 - sizes)).sum())
    if least >= EXPECTED_AT_LEAST:
        return least
    likely = _expected_uniform(counts) if counts.binary else 0.0
    return likely if likely >= EXPECTED else 0.0


def _expected_uniform(counts: RewardCounts) -> float:
    total = 0.0
    for size in np.unique(counts.sizes).tolist():
        if size >= 3:
            seen = np.bincount(counts.successes[counts.sizes == size], minlength=size + 1)
            for one, two in ((seen[1], seen[2]), (seen[size - 1], seen[size - 2])):
                total += one**2 / (two + 1.0) * comb(size, 2) / size**2
    return float(total)


def centred(counts: RewardCounts) -> bool:
    """Return whether the rewards of all groups have mean 0, but for rounding, though those of two groups or more differ."""
    mixed = int((~counts.uniform).sum())
    return mixed > 1 and bool((np.abs(counts.means) <= TINY * np.abs(counts.values).max()).all())


def nearly_equal(counts: RewardCounts) -> int:
    """Return in how many groups the rewards differ, and by no more than a thousandth of the range of all rewards."""
    starts, ends = counts.counts.indptr[:-1], counts.counts.indptr[1:]
    by_row = counts.counts.copy()
    by_row.sort_indices()
    spans = counts.values[by_row.indices[ends - 1]] - counts.values[by_row.indices[starts]]
    return int(((spans > 0.0) & (spans <= TINY * (counts.values[-1] - counts.values[0]))).sum())
