"""A choice among group sizes, whatever is compared: the recommended one, those that may be best, and what each loses."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Flags, Integers
from grpo_theory.intervals.interval import Interval

FEWEST_PROMPTS = 3
"""Of which a group size is chosen: fewer give no standard errors by leaving one out."""
MOST_FACTOR = 4096.0
"""A pilot is not advised to be more than so many times larger."""


@dataclass(frozen=True, eq=False)
class SizeChoice:
    """The allowed batches, what each loses, and which is best.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The group sizes, ascending, and the number of prompts at each.
    loss : Interval
        Shape (K,): what each size loses against the best one. No standard errors.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    """

    group_sizes: Integers
    batch_sizes: Integers
    loss: Interval
    candidates: Flags
    best: int

    @property
    def group_size(self) -> int:
        """The recommended group size."""
        return int(self.group_sizes[self.best])

    @property
    def batch_size(self) -> int:
        """The number of prompts beside it."""
        return int(self.batch_sizes[self.best])

    @property
    def low(self) -> int:
        """The smallest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][0])

    @property
    def high(self) -> int:
        """The largest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][-1])

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The smallest and the largest size of each run of whole numbers without a hole that cannot be told from the best."""
        kept = self.group_sizes[self.candidates]
        breaks = np.flatnonzero(np.diff(kept) > 1)
        first, last = kept[[0, *(breaks + 1)]], kept[[*breaks, kept.size - 1]]
        return list(zip(first.tolist(), last.tolist(), strict=True))

    @property
    def bounded(self) -> bool:
        """Whether the data rule out that the largest allowed group is best."""
        return not bool(self.candidates[-1])

    @property
    def risk(self) -> float:
        """The upper limit of what the recommended size loses; infinite if the data set none."""
        return float(self.loss.high[self.best])

    def at(self, group_size: int) -> int:
        """Return the index of a group size; ValueError if no batch of it is allowed."""
        index = int(np.searchsorted(self.group_sizes, group_size))
        if index == self.group_sizes.size or self.group_sizes[index] != group_size:
            raise ValueError(f"group_size must be one that budget and limits allow, got {group_size}")
        return index


def sufficient_prompts(risk: Callable[[int], float], pilot: int, tolerance: float) -> int | None:
    """Return the least number of prompts at which a limit that falls with it is within the tolerance, from a pilot's number on.

    None if it is within the tolerance at the pilot's own, so that this limit is not what the pilot lacks, and if more than
    `MOST_FACTOR` times as many are needed.
    """
    low = high = pilot
    if risk(pilot) <= tolerance:
        return None
    while risk(high) > tolerance:
        low, high = high, 2 * high
        if high > MOST_FACTOR * pilot:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if risk(middle) > tolerance else (low, middle)
    return high
