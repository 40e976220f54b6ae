"""The objective that an estimator climbs with finite groups and binary rewards, against all groups written out."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad

import grpo_theory as gt
from grpo_theory.theory import (
    best_slope,
    finite_group_objective,
    left_out_slope,
    relative_slope,
    standardised_slope,
)

CLOSED = {
    "trl_grpo": lambda p, g: standardised_slope(p, g, 1, 1e-4),
    "verl_grpo": lambda p, g: standardised_slope(p, g, 1, 1e-6),
    "openrlhf_group_norm": lambda p, g: standardised_slope(p, g, 1, 1e-9),
    "rllm": lambda p, g: standardised_slope(p, g, 0, 1e-6),
    "nemo_rl": lambda p, g: left_out_slope(p, g, 1, 1e-6),
    "max_rl": relative_slope,
    "verl_grpo_passk": lambda p, g: best_slope(p, g, 1, 1e-6),
    "trl_grpo_none": lambda p, g: np.full(np.shape(p), 1.0 - 1.0 / g),
    "trl_rloo": lambda p, g: np.ones(np.shape(p)),
    "reinforce": lambda p, g: np.ones(np.shape(p)),
}
P = np.array([1e-6, 0.03, 0.3, 0.5, 0.77, 0.999])


def moments_of_groups(name, p, size):
    """Return E[(1/G) sum_i A_i W_i] of a two-armed bandit as a multiple of grad p, from all 2^G groups."""
    advantage = gt.estimators()[name].advantage
    groups = np.array(list(product([0.0, 1.0], repeat=size)))
    nothing, unread = np.full(len(groups), np.nan), np.full(groups.shape, np.nan)
    lengths = np.ones(groups.shape, dtype=np.int64)
    filled = np.empty(groups.shape)
    advantage.function(gt.Batch(groups, unread, lengths, unread, nothing, nothing, nothing, advantage.parameter_array), filled)
    weights = np.where(groups > 0.0, p, 1.0 - p).prod(axis=1)
    scores = np.where(groups > 0.0, 1.0 / p, -1.0 / (1.0 - p))  # of p itself
    return weights @ (filled * scores).mean(axis=1)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_the_sums_over_all_groups(name, size):
    objective = finite_group_objective(name, size)
    expected = [moments_of_groups(name, p, size) for p in P]
    np.testing.assert_allclose(CLOSED[name](P, size), expected, rtol=1e-12)
    np.testing.assert_allclose(objective.slope(P), expected, rtol=1e-12)
    for p in (0.2, 1.0):
        np.testing.assert_allclose(objective.value(p), quad(objective.slope, 0.0, p, epsabs=0.0, epsrel=1e-12)[0], rtol=1e-11)
    assert objective.value(1.0) == pytest.approx(objective.total, rel=1e-12)


@pytest.mark.parametrize("size", [4, 8, 64, 512])
def test_ranges(size):
    bare = gt.estimators()["openrlhf_group_norm"].with_parameters(epsilon=0.0)
    objective = finite_group_objective(bare, size)
    low, high = objective.slope_range
    assert high == pytest.approx((size - 1.0) / np.sqrt(size), rel=1e-12)
    assert low == pytest.approx(float(objective.slope(0.5)), rel=1e-12)
    assert objective.total < np.pi
    assert finite_group_objective("max_rl", size).slope_range == pytest.approx((1.0, size - 1.0), rel=1e-9)
    assert finite_group_objective("max_rl", size).total == pytest.approx(np.sum(1.0 / np.arange(1, size)), rel=1e-12)
    nemo = finite_group_objective("nemo_rl", size)
    assert nemo.slope([0.0, 1.0]).tolist() == [1.0, 1.0]
