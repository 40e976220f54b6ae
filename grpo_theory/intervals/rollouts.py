"""Rollouts: rewards and scores of groups of responses, one group per prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.policy import LARGEST_REWARD
from grpo_theory.validation import ROUNDING, Array, Integers, as_numbers, as_real_array, check_size, kept, outline, read_only

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
            raise ValueError(
                "rollouts must have scores (the gradient of log pi of each response) for this, and have rewards alone"
            )
        return self.scores

    def along(self, directions: ArrayLike) -> Self:
        """Return the rollouts with the scores' components along `directions`, shape (L, J), in place of the scores.

        Intervals of the gradient are then about its L components. A component that is 0 up to rounding is set to 0, so that no
        interval is made of rounding. Norms are kept only if the directions are orthonormal and span the scores.
        """
        array, scores = as_real_array("directions", directions, 2), self.known_scores
        if array.shape[1] != scores.shape[-1]:
            raise ValueError(f"directions must have shape (L, J) with the scores' J = {scores.shape[-1]}, got {array.shape}")
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
        names = [("rewards", 2, "(..., B, G)")]
        if self.scores is not None:
            names.append(("scores", 3, "(..., B, G, J)"))
        for name, axes, shape in names:
            array = as_numbers(name, getattr(self, name))
            if array.ndim < axes or array.size == 0:
                raise ValueError(f"{name} must have shape {shape} and not be empty, got {array.shape}")
            check_size(name, array, LARGEST[name])
            object.__setattr__(self, name, kept(array))
        if self.scores is not None and self.scores.shape[:-1] != self.rewards.shape:
            raise ValueError(
                f"scores must have shape (..., B, G, J) with the rewards' (..., B, G) = {self.rewards.shape}, "
                f"got {self.scores.shape}"
            )

    @classmethod
    def of_checked(cls, rewards: Array, scores: Array | None) -> Rollouts:
        """Return rollouts of arrays that nobody can write and that are part of others, which were checked.

        Parameters
        ----------
        rewards, scores : ndarray
            As the attributes.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> whole = gt.Rollouts([[1.0, 0.0], [0.0, 0.0]])
        >>> gt.Rollouts.of_checked(whole.rewards[:1], None).rewards.tolist()
        [[1.0, 0.0]]
        """
        made = object.__new__(cls)
        object.__setattr__(made, "rewards", rewards)
        object.__setattr__(made, "scores", scores)
        return made

    @property
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""
        return np.full(*self.rewards.shape[-2:])

    @property
    def group_size(self) -> int:
        """The number of responses per prompt G."""
        return self.rewards.shape[-1]
