"""Rewards less their mean, so that a uniform group has deviations of exactly 0."""

from grpo_theory.compiler import stage


@stage
def centre(rewards, centred):
    """Fill `centred` (n,) with rewards (n,) less their mean, and return the sum of the squares.

    Deviations are taken from the first reward before they are taken from the mean: equal rewards, 0.1 three times, leave 0 and
    not the rounding of a sum, which a kernel would go on to divide by a standard deviation of the same size.
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
