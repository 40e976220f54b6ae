"""What a user has after sampling: rewards and scores of B groups of G responses."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers, kept
from grpo_theory.samples.groups import LARGEST, Groups
from grpo_theory.validation import as_numbers, check_size


@dataclass(frozen=True, eq=False)
class Rollouts(Groups):
    """One batch of responses, or many batches along leading axes (...), as many responses to each prompt.

    Attributes
    ----------
    rewards : ndarray, shape (..., B, G)
        Z, one row for each prompt.
    scores : ndarray, shape (..., B, G, J), optional
        W = grad log pi of each response, or its components along J directions of interest, or in any J orthonormal
        coordinates (which keep norms and inner products). None where only rewards are known: then intervals of the value
        can be had, and none that is about gradients.
    """

    rewards: Array
    scores: Array | None = None

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

    @property
    def sizes(self) -> Integers:
        """The number of responses to each prompt, shape (B,): G for all."""
        return np.full(self.rewards.shape[-2], self.group_size)

    @property
    def group_size(self) -> int:
        """The number of responses a prompt G."""
        return self.rewards.shape[-1]

    @property
    def single(self) -> bool:
        """Whether this is one batch, without leading axes."""
        return self.rewards.ndim == 2

    def require(self, *, prompts: int = 1, responses: int = 1) -> None:
        """Raise ValueError unless there are so many prompts, and so many responses to each."""
        if self.batch_size < prompts:
            raise ValueError(f"rollouts must have at least {prompts} prompts, got B = {self.batch_size}")
        if self.group_size < responses:
            raise ValueError(f"rollouts must have at least {responses} responses a prompt, got G = {self.group_size}")

    def by_prompt(self, statistic: "Callable[[Rollouts], Array]") -> Array:
        """Return the statistic, (..., B) or (..., B, L)."""
        return statistic(self)

    def with_scores(self, scores: ArrayLike | None) -> "Rollouts":
        """Return the same rewards with other scores, shape (..., B, G, J)."""
        return Rollouts(self.rewards, scores)  # type: ignore[arg-type]  # made an array there
