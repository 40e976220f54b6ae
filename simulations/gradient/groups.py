"""The estimate of one group, from its scores and rewards."""

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find


def estimate(name: str, scores: Array, rewards: Array) -> Array:
    """Compute (1/G) sum_i A_i W_i with the registered kernel."""
    advantage = find(name).advantage
    advantages = np.empty((1, len(rewards)))
    unread, nothing = np.ones((1, len(rewards))), np.zeros(1)
    lengths = np.ones((1, len(rewards)), dtype=np.int64)
    batch = gt.Batch(rewards[None], unread, lengths, nothing, nothing, nothing, advantage.parameter_array)
    advantage.kernel(batch, advantages)
    return advantages[0] @ scores / len(rewards)
