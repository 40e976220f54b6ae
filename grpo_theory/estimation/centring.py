"""Rewards less their mean, so that a uniform group has deviations of exactly 0."""

from grpo_theory.compiler import stage


@stage
def centre(rewards, centred):
    """Fill `centred` (n,) with rewards (n,) less their mean, and return the sum of the squares.

    The first reward is subtracted before the mean is. Equal rewards, 0.1 three times, then leave exactly 0. The rounding error of
    a sum would be divided by a standard deviation of the same size in a kernel that divides.
    """
    first, total = rewards[0], 0.0
    for g in range(rewards.size):
        total += rewards[g] - first
    mean = total / rewards.size
    squares = 0.0
    for g in range(rewards.size):
        centred[g] = (rewards[g] - first) - mean
        squares += centred[g] ** 2
    return squares
