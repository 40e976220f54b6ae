"""Rewards that differ by little, taken for equal."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.validation import as_number


def levels(values: Array, tolerance: float) -> Array:
    """Return for each of ascending values, shape (L,), the level that stands for it.

    From the least on, values that exceed the first of a level by no more than the tolerance are of that level; their mean stands
    for them. Where gaps between clusters of rewards are wider than the tolerance, and clusters narrower, levels are the clusters.
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
