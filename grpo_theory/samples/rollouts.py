"""What a user has after sampling: rewards and scores of B groups of G responses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import ROUNDING, as_real_array


@dataclass(frozen=True)
class Rollouts:
    """One batch of responses, or many batches along leading axes (...).

    Attributes
    ----------
    rewards : ndarray, shape (..., B, G)
        Z, one row for each prompt.
    scores : ndarray, shape (..., B, G, J)
        W = grad log pi of each response, or its components along J directions of interest, or in any J orthonormal
        coordinates (which keep norms and inner products).
    """

    rewards: Array
    scores: Array

    def __post_init__(self) -> None:
        for name, axes, shape in (("rewards", 2, "(..., B, G)"), ("scores", 3, "(..., B, G, J)")):
            try:
                array = np.asarray(getattr(self, name), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must be an array of real numbers: {error}") from None
            if array.ndim < axes or array.size == 0:
                raise ValueError(f"{name} must have shape {shape} and not be empty, got {array.shape}")
            finite = np.isfinite(array)
            if not finite.all():
                where = tuple(int(i) for i in np.argwhere(~finite)[0])
                raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")
            object.__setattr__(self, name, array)
        if self.scores.shape[:-1] != self.rewards.shape:
            raise ValueError(
                f"scores must have shape (..., B, G, J) with the rewards' (..., B, G) = {self.rewards.shape}, "
                f"got {self.scores.shape}"
            )

    @property
    def batch_size(self) -> int:
        """The number of prompts B."""
        return self.rewards.shape[-2]

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

    def along(self, directions: ArrayLike) -> "Rollouts":
        """Return the rollouts with the scores' components along `directions`, shape (L, J), in place of the scores.

        Intervals of the gradient are then about its L components; one that is 0 but for rounding is 0, so that no interval is
        made of rounding. Norms are kept only if the directions are orthonormal and
        span the scores.
        """
        array = as_real_array("directions", directions, 2)
        if array.shape[1] != self.scores.shape[-1]:
            raise ValueError(f"directions must have shape (L, J) with the scores' J = {self.scores.shape[-1]}, got {array.shape}")
        components, size = self.scores @ array.T, np.abs(self.scores) @ np.abs(array).T
        return Rollouts(self.rewards, np.where(np.abs(components) <= ROUNDING * size, 0.0, components))
