"""Groups of responses: how many a step has, their advantages, and the estimate of one by a registered kernel."""

import numpy as np

from grpo_theory.estimation import find
from grpo_theory.validation import Array

RESPONSES = 1024
"""The budget of a step, N = B G, where efficiencies are compared."""


def advantages_of(name: str, rewards: Array) -> Array:
    """Compute the advantages (B, G) of a registered kernel that reads rewards (B, G) alone."""
    advantage, (n_groups, _) = find(name).advantage, rewards.shape
    advantages = np.empty_like(rewards)
    unread, nothing = np.ones_like(rewards), np.zeros(n_groups)
    lengths = np.ones(rewards.shape, dtype=np.int64)
    advantage.run((rewards, unread, lengths, unread, nothing, nothing, nothing), advantages)
    return advantages


def estimate(name: str, scores: Array, rewards: Array) -> Array:
    """Compute (1/G) sum_i A_i W_i with a registered kernel; scores (G, D), rewards (G,)."""
    return advantages_of(name, rewards[None])[0] @ scores / len(rewards)
