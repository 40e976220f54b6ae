"""Rollouts: rewards and scores of groups of responses, one group per prompt.

Groups have one size (`Rollouts`) or any sizes (`RaggedRollouts`, `RewardCounts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from grpo_theory.problem.policy import LARGEST_REWARD
from grpo_theory.validation import (
    ROUNDING,
    Array,
    Flags,
    Integers,
    as_array,
    as_count,
    as_numbers,
    as_real_array,
    cached_array,
    check_shape,
    check_size,
    check_unmasked,
    kept,
    outline,
    read_only,
    shown,
)

LARGEST = {"rewards": LARGEST_REWARD, "scores": 1e12}
"""Variances of squares are numbers up to it, with the fourth power of reward times score, 1e288, in them."""


class Groups(ABC):
    """Rewards, and scores where they are known, of the responses to B prompts; `Rollouts` or `RaggedRollouts`.

    This is the interface that intervals and statistics use.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> groups = [gt.Rollouts([[1.0, 0.0], [0.0, 1.0]]), gt.RaggedRollouts(["a", "a", "b"], [1.0, 0.0, 1.0])]
    >>> [one.by_prompt(lambda group: group.rewards.mean(axis=-1)).tolist() for one in groups]
    [[0.5, 0.5], [0.5, 1.0]]
    >>> [one.require(prompts=2) for one in groups]  # raises where there are fewer
    [None, None]
    >>> scored = groups[1].with_scores(np.ones((3, 4)))
    >>> scored.along(np.eye(4)[:2]).scores.shape
    (3, 2)
    """

    rewards: Array
    scores: Array | None

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""

    @property
    def single(self) -> bool:
        """Whether this is one batch, without leading axes."""
        return self.rewards.ndim <= 2

    def require(self, *, prompts: int = 1, responses: int = 1) -> None:
        """Raise ValueError unless there are so many prompts, and so many responses to each."""
        if self.batch_size < prompts:
            raise ValueError(f"rollouts must have at least {prompts} prompts, got B = {self.batch_size}")
        fewest, small = self.sizes.min(), int((self.sizes < responses).sum())
        if small:
            some = f", and {small} of {self.batch_size} prompts have fewer (the fewest {fewest}); rollouts.at_least({responses}) "
            found = f", got G = {fewest}" if fewest == self.sizes.max() else f"{some}leaves these prompts out"
            raise ValueError(f"rollouts must have at least {responses} responses per prompt{found}")

    def by_prompt(self, statistic: Callable[..., Array]) -> Array:
        """Return a statistic of each prompt, (..., B) or (..., B, L), from a function of `Rollouts`.

        Each prompt's is computed within its own group of responses.
        """
        return statistic(self)

    def with_scores(self, scores: ArrayLike | None) -> Self:
        """Return the same prompts and rewards with other scores, one for each reward."""
        return replace(self, scores=scores)  # type: ignore[type-var]

    @property
    def batch_size(self) -> int:
        """The number of prompts B."""
        return self.sizes.size

    @property
    def known_scores(self) -> Array:
        """The scores; raise ValueError if there are none."""
        if self.scores is None:
            raise ValueError("rollouts must have scores (the gradient of log pi of each response), and have rewards alone")
        return self.scores

    def along(self, directions: ArrayLike) -> Self:
        """Return the rollouts with the scores' components along `directions`, shape (L, J), in place of the scores.

        Intervals of the gradient are then about its L components. A component that is 0 up to rounding is set to 0, so that no
        interval is made of rounding. Norms are kept only if the directions are orthonormal and span the scores.
        """
        array, scores = as_real_array("directions", directions, 2), self.known_scores
        check_shape("directions", array, (len(array), scores.shape[-1]), "(L, J), J as of the scores")
        components, size = scores @ array.T, np.abs(scores) @ np.abs(array).T
        return self.with_scores(read_only(np.where(np.abs(components) <= ROUNDING * size, 0.0, components)))


@dataclass(frozen=True, eq=False)
class Rollouts(Groups):
    """One batch of responses, or many batches along leading axes (...), as many responses to each prompt.

    Attributes
    ----------
    rewards : ndarray, shape (..., B, G)
        Z, one row for each prompt.
    scores : ndarray, shape (..., B, G, J), optional
        W = grad log pi of each response, or its components along J directions of interest. They may also be in any J orthonormal
        coordinates, which keep norms and inner products. None where only rewards are known: then there are intervals of the
        value, and none about gradients.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> rollouts = gt.Rollouts([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    >>> rollouts.batch_size, rollouts.require(prompts=2, responses=3)  # raises where there are fewer
    (2, None)
    >>> rollouts.by_prompt(lambda groups: groups.rewards.mean(axis=-1)).round(3).tolist()
    [0.667, 0.333]
    >>> rollouts.with_scores(np.ones((2, 3, 5))).along(np.eye(5)[:2]).scores.shape
    (2, 3, 2)
    """

    rewards: Array
    scores: Array | None = None
    __repr__ = outline

    def __post_init__(self) -> None:
        for name, axes, shape in (("rewards", 2, "(..., B, G)"), ("scores", 3, "(..., B, G, J)")):
            if name == "rewards" or self.scores is not None:
                array = as_numbers(name, getattr(self, name))
                if array.ndim < axes or array.size == 0:
                    raise ValueError(f"{name} must have shape {shape} and not be empty, got {array.shape}")
                check_size(name, array, LARGEST[name])
                object.__setattr__(self, name, kept(array))
        if self.scores is not None:
            check_shape("scores", self.scores, (*self.rewards.shape, self.scores.shape[-1]), "(..., B, G, J), one row a reward")

    @classmethod
    def _of_checked(cls, rewards: Array, scores: Array | None) -> Rollouts:
        """Return the rollouts of new arrays whose numbers have been checked."""
        rollouts = cls.__new__(cls)
        vars(rollouts).update(rewards=read_only(rewards), scores=read_only(scores))
        return rollouts

    @property
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""
        return np.full(*self.rewards.shape[-2:])

    @property
    def group_size(self) -> int:
        """The number of responses per prompt G."""
        return self.rewards.shape[-1]


SEMIDEFINITE = 1e-6
"""How asymmetric a matrix of inner products may be, relative to its largest entry. Also how far its eigenvalues may be below 0,
relative to the largest. These are some ten roundings of float32, in which gradients are usually multiplied."""


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
    def from_rewards(cls, prompts: ArrayLike, rewards: ArrayLike) -> RewardCounts:
        """Count rewards (N,) by the index (N,) of their prompt, 0 to B - 1."""
        array = as_real_array("rewards", rewards, 1)
        index = as_array("prompts", prompts)
        if index.shape != array.shape or index.dtype.kind not in "iu" or index.min() < 0:
            raise ValueError(f"prompts must be an index of at least 0 for each of the {array.size} rewards, got {shown(prompts)}")
        values, column = np.unique(array, return_inverse=True)
        shape = int(index.max()) + 1, values.size
        return cls(values, sparse.csr_array((np.ones(array.size, dtype=np.int64), (index, column)), shape=shape))

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


@dataclass(frozen=True, eq=False)
class RaggedRollouts(Groups):
    """N responses to B prompts, one row per response, in groups of any sizes.

    Prompts are treated as equally weighted draws from f, whatever their numbers of responses. An estimate is an average over
    prompts of what each says by itself. The number of responses must not depend on the responses. A trainer that samples until a
    group is mixed (dynamic sampling) breaks this. Every estimate from its groups is then about the groups that it kept.

    Attributes
    ----------
    prompts : ndarray, shape (B,)
        The ids of the prompts in order of first appearance. Given as an id (any hashable value) for each response, shape (N,).
    rewards : ndarray, shape (N,)
    scores : ndarray, shape (N, J), optional
        As in `Rollouts`.
    index : ndarray, shape (N,)
        The prompt of each response, 0 to B - 1.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> rollouts = gt.RaggedRollouts(["a", "a", "b", "b", "b", "c"], [1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    >>> rollouts.prompts.tolist(), rollouts.sizes.tolist()
    (['a', 'b', 'c'], [2, 3, 1])
    >>> rollouts.at_least(2).prompts.tolist(), rollouts.require(prompts=3)  # raises where there are fewer
    (['a', 'b'], None)
    >>> rollouts.by_prompt(lambda groups: groups.rewards.mean(axis=-1)).round(3).tolist()
    [0.5, 0.667, 0.0]
    >>> rollouts.with_scores(np.ones((6, 4))).scores.shape
    (6, 4)
    >>> gt.RaggedRollouts.from_index(["a", "b"], [0, 0, 1], [1.0, 0.0, 1.0]).sizes.tolist()
    [2, 1]
    >>> gt.RaggedRollouts.from_inner_products(["a", "a", "b"], [1.0, 0.0, 1.0], np.eye(3)).scores.shape
    (3, 3)
    """

    prompts: np.ndarray
    rewards: Array
    scores: Array | None = None
    index: Integers = field(init=False)
    __repr__ = outline

    def __post_init__(self) -> None:
        rewards = as_real_array("rewards", self.rewards, 1)
        prompts, index = numbered("prompts", self.prompts)
        if index.size != rewards.size:
            raise ValueError(f"prompts must have an id for each of the {rewards.size} rewards, got {index.size}")
        arrays: dict[str, np.ndarray] = {"prompts": prompts, "rewards": rewards, "index": index}
        if self.scores is not None:
            arrays["scores"] = as_real_array("scores", self.scores, 2)
            check_shape("scores", arrays["scores"], (rewards.size, arrays["scores"].shape[1]), "(N, J), one row a reward")
        for name, array in arrays.items():
            if name in LARGEST:
                check_size(name, array, LARGEST[name])
            object.__setattr__(self, name, kept(array))

    @classmethod
    def from_index(
        cls, prompts: Iterable[Hashable], index: ArrayLike, rewards: ArrayLike, scores: ArrayLike | None = None
    ) -> RaggedRollouts:
        """Return the rollouts whose response n answers prompts[index[n]], of B different ids and an index (N,) of them."""
        ids, numbers = _objects("prompts", prompts), as_real_array("index", index, 1)
        if not ((numbers >= 0) & (numbers < ids.size) & (numbers == np.floor(numbers))).all():
            raise ValueError(f"index must be whole numbers from 0 to {ids.size - 1}, one a reward, got {shown(index)}")
        rollouts = cls(numbers.astype(np.int64), rewards, scores)  # type: ignore[arg-type]  # made arrays there
        object.__setattr__(rollouts, "prompts", kept(ids[rollouts.prompts]))
        return rollouts

    @classmethod
    def from_inner_products(cls, prompts: Iterable[Hashable], rewards: ArrayLike, gram: ArrayLike) -> RaggedRollouts:
        """Return rollouts whose scores have given inner products, from the gradients' Gram matrix.

        The scores are coordinates in which the gradients have these norms and inner products: gram = X X', by eigenvectors. All
        estimates of c1, c2, c3 and the optimal group size depend on inner products alone. Single components of the gradient
        (`gradient_between`) mean nothing in these coordinates.

        Parameters
        ----------
        prompts : iterable of N hashable ids
        rewards : array_like, shape (N,)
        gram : array_like, shape (N, N)
            The inner products of the gradients of log pi of the responses. The matrix is symmetric and has no eigenvalue clearly
            below 0 (below -1e-6 of the largest; those nearer to 0 are taken for 0). Inner products that were estimated one by
            one, each by a projection of its own, need not be those of any vectors. Use one projection for all responses, and pass
            the projected gradients as `scores`.
        """
        array, given = as_real_array("gram", gram, 2), as_real_array("rewards", rewards, 1)
        check_shape("gram", array, (given.size, given.size), "(N, N), the gradients' inner products")
        values, vectors = np.linalg.eigh((array + array.T) / 2.0)
        gap, largest = float(np.abs(array - array.T).max()), float(np.abs(array).max())
        if gap > SEMIDEFINITE * largest or values[0] < -SEMIDEFINITE * max(values[-1], 0.0):
            found = f"differs from its transpose by {gap:.3g} beside {largest:.3g}, and has the eigenvalue {values[0]:.3g}"
            raise ValueError(f"gram must be symmetric with no eigenvalue below 0, as inner products are; it {found}")
        roots = np.sqrt(np.maximum(values, 0.0))
        some = np.append(roots[:-1] > 0.0, True)
        return cls(prompts, given, vectors[:, some] * roots[some])  # type: ignore[arg-type]

    @cached_array
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""
        return np.bincount(self.index)

    @cached_property
    def counts(self) -> RewardCounts:
        """How often each prompt got each reward."""
        return RewardCounts.from_rewards(self.index, self.rewards)

    def at_least(self, responses: int) -> RaggedRollouts:
        """Return the prompts with at least so many responses; the difference in `batch_size` is how many were left out."""
        enough = self.sizes >= as_count("responses", responses)
        if not enough.any():
            raise ValueError(f"responses must be at most {self.sizes.max()}, the size of the largest group, got {responses}")
        if enough.all():
            return self
        rows = enough[self.index]
        scores = None if self.scores is None else self.scores[rows]
        return self.from_index(self.prompts, self.index[rows], self.rewards[rows], scores)

    def by_prompt(self, statistic: Callable[[Rollouts], Array]) -> Array:
        """Return a statistic of each prompt, (B,) or (B, L): groups of equal size are stacked, and computed at once."""
        sizes, numbers = np.unique(self.sizes, return_counts=True)
        prompts_by_size = np.split(np.argsort(self.sizes, kind="stable"), np.cumsum(numbers)[:-1])
        rows_by_size = np.split(self._order, np.cumsum(numbers * sizes)[:-1])
        statistics: Array | None = None
        for size, prompts, rows in zip(sizes, prompts_by_size, rows_by_size, strict=True):
            scores = None if self.scores is None else self.scores[rows].reshape(prompts.size, size, -1)
            found = statistic(Rollouts._of_checked(self.rewards[rows].reshape(-1, size), scores))
            statistics = np.empty((self.batch_size, *found.shape[1:])) if statistics is None else statistics
            statistics[prompts] = found
        return np.asarray(statistics)

    @cached_array
    def _order(self) -> Integers:
        """The rows (N,) by the size of their group, then by group: many statistics are computed of the same rollouts."""
        return np.lexsort((self.index, self.sizes[self.index]))

    def with_scores(self, scores: ArrayLike | None) -> RaggedRollouts:
        """Return the same prompts and rewards with other scores, shape (N, J)."""
        return self.from_index(self.prompts, self.index, self.rewards, scores)


def _objects(name: str, values: Iterable[Hashable]) -> np.ndarray:
    """Return ids as an array of one dimension, tuples among them as they are."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        raise TypeError(f"{name} must be ids, one per response, got {shown(values)}")
    check_unmasked(name, values)
    if isinstance(values, np.ndarray):
        return values
    listed = list(values)
    objects = np.empty(len(listed), dtype=object)
    objects[:] = listed
    return objects


def numbered(name: str, values: Iterable[Hashable]) -> tuple[np.ndarray, Integers]:
    """Return the different ids (B,) in order of first appearance, and the index (N,) of each id among them."""
    import pandas as pd  # slow to import, and not always wanted

    try:
        index, ids = pd.factorize(_objects(name, values))
    except TypeError as error:
        raise TypeError(f"{name} must be hashable ids, one per response: {error}") from None
    if (index < 0).any():
        raise ValueError(f"{name} must have an id for every response, and row {int(np.argmin(index))} has none")
    return np.asarray(ids), index.astype(np.int64)
