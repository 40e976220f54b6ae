"""What rewards alone tell about a set of prompts: how often each prompt got each reward, and whether groups were left out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import comb

from grpo_theory.problem.policy import LARGEST_REWARD
from grpo_theory.validation import (
    Array,
    Flags,
    Integers,
    as_array,
    as_number,
    as_real_array,
    cached_array,
    check_size,
    read_only,
    shown,
)

TINY = 1e-3
"""Rewards of a group that differ by no more than this share of the range of all rewards are remarked on."""
EXPECTED_AT_LEAST = 5.0
"""A log without uniform groups has been filtered if so many were to be expected, by the least chance that any policy has. None
come then with a chance below exp(-5) = 0.7%."""
EXPECTED = 7.0
"""The same where the number expected is itself an estimate."""


@dataclass(frozen=True, eq=False)
class RewardCounts:
    """Counts of each of L rewards for each of B prompts, in groups of any sizes.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The rewards that came, ascending.
    counts : scipy.sparse.csr_array, shape (B, L)
        How often each prompt got each of them; every prompt has at least one response.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> counts = gt.RewardCounts.from_rewards([0, 0, 0, 1, 1], [1.0, 0.0, 1.0, 0.0, 0.0])
    >>> counts.values.tolist(), counts.counts.toarray().tolist()
    ([0.0, 1.0], [[1, 2], [2, 0]])
    """

    values: Array
    counts: sparse.csr_array

    def __post_init__(self) -> None:
        values = as_real_array("values", self.values, 1)
        if not np.isfinite(values).all() or (np.diff(values) <= 0.0).any():
            raise ValueError(f"values must be finite and ascending, got {shown(self.values)}")
        check_size("values", values, LARGEST_REWARD)
        try:
            counts = sparse.csr_array(self.counts)
        except (TypeError, ValueError) as error:
            raise ValueError(f"counts must be a matrix of whole numbers: {error}") from None
        if counts.ndim != 2 or counts.shape[1] != values.size or 0 in counts.shape:
            raise ValueError(f"counts must have shape (B, L) with B >= 1 and L = {values.size} values, got {counts.shape}")
        if counts.dtype.kind not in "iu" or (counts.data < 0).any():
            raise ValueError("counts must be whole numbers, none below 0")
        counts = counts.astype(np.int64)  # a copy, which is ours to tidy
        counts.sum_duplicates()
        counts.eliminate_zeros()
        object.__setattr__(self, "values", read_only(values))
        object.__setattr__(self, "counts", counts)
        if (self.sizes == 0).any():
            raise ValueError(f"every prompt must have a response; prompt {int(np.argmin(self.sizes))} has none")

    @classmethod
    def from_rewards(cls, prompts: ArrayLike, rewards: ArrayLike) -> "RewardCounts":
        """Count rewards (N,) by the index (N,) of their prompt, 0 to B - 1."""
        array = as_real_array("rewards", rewards, 1)
        index = as_array("prompts", prompts)
        if index.shape != array.shape or index.dtype.kind not in "iu" or index.min() < 0:
            raise ValueError(f"prompts must be an index of at least 0 for each of the {array.size} rewards, got {shown(prompts)}")
        values, column = np.unique(array, return_inverse=True)
        shape = int(index.max()) + 1, values.size
        return cls(
            values, sparse.csr_array(sparse.coo_array((np.ones(array.size, dtype=np.int64), (index, column)), shape=shape))
        )

    @property
    def prompts(self) -> int:
        """The number of prompts B."""
        return self.counts.shape[0]

    @cached_array
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""
        return np.asarray(self.counts.sum(axis=1)).ravel()

    @property
    def binary(self) -> bool:
        """Whether there are exactly two rewards: the greater counts as success."""
        return self.values.size == 2

    @cached_array
    def successes(self) -> Integers:
        """How often each prompt got the greatest reward, shape (B,)."""
        return self.counts[:, [-1]].toarray().ravel()

    @cached_array
    def means(self) -> Array:
        """The mean reward of each prompt, shape (B,)."""
        return self.values[0] + self.counts @ (self.values - self.values[0]) / self.sizes

    @cached_array
    def uniform(self) -> Flags:
        """Whether all rewards of a prompt were equal, shape (B,)."""
        return np.diff(self.counts.indptr) == 1


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
