"""Groups of responses, one group a prompt: what intervals and statistics ask of rollouts, rectangular or ragged."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers, read_only
from grpo_theory.problem.bandit import LARGEST_REWARD
from grpo_theory.validation import ROUNDING, as_real_array

LARGEST = {"rewards": LARGEST_REWARD, "scores": 1e12}
"""Variances of squares are numbers up to it, with the fourth power of reward times score, 1e288, in them."""


class Groups(ABC):
    """Rewards, and scores where they are known, of the responses to B prompts; `Rollouts` or `RaggedRollouts`."""

    rewards: Array
    scores: Array | None

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,)."""

    @property
    @abstractmethod
    def single(self) -> bool:
        """Whether this is one batch, without leading axes."""

    @abstractmethod
    def require(self, *, prompts: int = 1, responses: int = 1) -> None:
        """Raise ValueError unless there are so many prompts, and so many responses to each."""

    @abstractmethod
    def by_prompt(self, statistic: "Callable[..., Array]") -> Array:
        """Return a statistic of each prompt, (..., B) or (..., B, L), from a function of `Rollouts`.

        Each prompt's is computed within its own group of responses.
        """

    @abstractmethod
    def with_scores(self, scores: ArrayLike | None) -> Self:
        """Return the same prompts and rewards with other scores, one for each reward."""

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

        Intervals of the gradient are then about its L components; one that is 0 but for rounding is 0, so that no interval is
        made of rounding. Norms are kept only if the directions are orthonormal and
        span the scores.
        """
        array, scores = as_real_array("directions", directions, 2), self.known_scores
        if array.shape[1] != scores.shape[-1]:
            raise ValueError(f"directions must have shape (L, J) with the scores' J = {scores.shape[-1]}, got {array.shape}")
        components, size = scores @ array.T, np.abs(scores) @ np.abs(array).T
        return self.with_scores(read_only(np.where(np.abs(components) <= ROUNDING * size, 0.0, components)))
