"""What rewards alone tell about a set of prompts: how often each prompt got each reward."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from grpo_theory.arrays import Array, Flags, Integers, cached_array, read_only
from grpo_theory.problem.bandit import LARGEST_REWARD
from grpo_theory.validation import as_array, as_real_array, check_size, shown


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
