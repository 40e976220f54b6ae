"""The studies' own kernels: each is what its name says, right or wrong by what is stated, and has a name of its own."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.kernels import KERNELS, kernel_at

REWARDS = np.array([[1.0, 0.0, 1.0, 0.5]])
VALUE, BEST = 0.4, 0.7
T = 0.8
OTHERS = (REWARDS.sum() - REWARDS) / 3.0
ADVANTAGES = {
    "scaled_value": REWARDS - T * VALUE,
    "scaled_optimal": REWARDS - T * BEST,
    "shifted_optimal": REWARDS - BEST - T,
    "scaled_mean": REWARDS - T * OTHERS,
    "turned_mean": T * (OTHERS - REWARDS),
    "constant_baseline": REWARDS - T,
}


@pytest.mark.parametrize("name", KERNELS)
def test_advantages_are_as_described(name):
    advantages, unread, one = np.empty((1, 4)), np.ones((1, 4)), np.ones(1)
    parameters = kernel_at(name, T).advantage.parameter_array
    batch = gt.Batch(REWARDS, unread, unread.astype(np.int64), VALUE * one, one, BEST * one, parameters)
    KERNELS[name](batch, advantages)
    np.testing.assert_allclose(advantages, ADVANTAGES[name], rtol=1e-14)
