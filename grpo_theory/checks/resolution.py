"""How exactly a log holds its advantages, and how far rounding may carry them from what a convention gives."""

import numpy as np

from grpo_theory.validation import Array

ROUNDING = 2.0**-24
"""Half the distance from 1 to the next float32, in which trainers compute."""
ROUNDINGS = 16.0
"""So many roundings of the largest reward are allowed before it is scaled: sums of a group, its mean, its deviation."""
FEWEST_DECIMALS, MOST_DECIMALS = 2, 6
"""Numbers of decimals that count as a log's rounding: with fewer, all values are likely to be exact, as 1 and -0.5 are."""
MANTISSAS = ((np.float32, 16, 2.0**-9), (np.float32, 13, 2.0**-12))
"""Formats with fewer bits than float32: the bits of it that are then 0, and their half distance, of bfloat16 and float16."""


def half_spacings(values: Array) -> Array:
    """Return half the distance between neighbours in the coarsest format that holds all values (N,): decimals or short floats."""
    for decimals in range(MOST_DECIMALS + 1):
        if np.allclose(values, np.round(values, decimals), rtol=1e-14, atol=1e-14):
            if decimals < FEWEST_DECIMALS:
                break
            return np.full(values.shape, 0.5 * 10.0**-decimals)
    single = values.astype(np.float32)
    if np.array_equal(single.astype(np.float64), values):
        bits = single.view(np.uint32)
        for _, empty, share in MANTISSAS:
            if not (bits & np.uint32(2**empty - 1)).any():
                return np.abs(values) * share
    return np.abs(values) * ROUNDING


def tolerances(expected: Array, rewards: Array, spacing: Array, beside: float = 0.0) -> Array:
    """Return how far logged advantages (B, G) may be from the expected ones (B, G) of rewards (B, G).

    The advantages carry the rounding of the rewards, multiplied by a scale. The scale is the largest advantage of the group
    divided by the largest deviation of a reward from the group's mean, but at least 1. `spacing` (B, G) is that of the log,
    `beside` the largest reward of other groups that the convention looks at.
    """
    deviations = np.abs(rewards - rewards.mean(axis=1, keepdims=True)).max(axis=1, keepdims=True)
    largest = np.abs(expected).max(axis=1, keepdims=True)
    gain = np.maximum(1.0, np.divide(largest, deviations, out=np.ones_like(largest), where=deviations > 0.0))
    carried = ROUNDINGS * ROUNDING * gain * np.maximum(beside, np.abs(rewards).max(axis=1, keepdims=True))
    return spacing + carried + ROUNDINGS * ROUNDING * np.abs(expected)
