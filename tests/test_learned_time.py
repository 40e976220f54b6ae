"""The study of the time to a level where features are learned: its level, its control, and what its verdicts follow."""

from itertools import product

import numpy as np
import pytest

from grpo_theory.estimation.kernel import Batch
from simulations.training.learned_time import ARMS


def test_a_quarter_of_the_mean_update_is_left_of_the_broken_arm():
    """By all groups of eight rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for arm in ("broken", "TIC"):
        kernel, total = ARMS[arm].advantage.function, 0.0
        for group in product([0.0, 1.0], repeat=8):
            z, advantages = np.array([group]), np.empty((1, 8))
            kernel(Batch(z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    assert means[1] == pytest.approx(0.875 * 0.3 * 0.7, rel=1e-12)
    assert means[0] == pytest.approx(0.25 * means[1], rel=1e-12)


def made_up(times):
    """Return results of arms with these times at the middle step, one for each problem, and longer ones elsewhere."""
    return {"arms": [{"arm": arm, "steps": [1.0, 2.0, 4.0], "times": [own + 9.0, own, own + 9.0]} for arm, own in times.items()]}
