"""A kernel that reads the responses' probabilities: its law by enumeration, and chains beside the law."""

import numpy as np
import pytest
from enumeration import assert_law, batch_law, case

import grpo_theory as gt
from grpo_theory.estimation import make_estimator


def unlikely_rewarded(batch, advantages):
    """A = (Z - group mean) times 1 - pi: rare responses count more."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = (batch.rewards[b, g] - mean) * (1.0 - np.exp(batch.log_probabilities[b, g]))


unlikely = make_estimator("unlikely", unlikely_rewarded, minimum_group_size=2, exchangeable=True)
"""Not registered: studies of all estimators would see it."""


@pytest.mark.parametrize("place", [("linear", "graded", "plain"), ("shared tree", "binary", "plain")])
def test_the_law_is_that_of_all_groups(place):
    c, sizes = case(*place), {"batch_size": 2, "group_size": 2, "behaviour": None}
    assert_law(gt.gradient_law(c.problem, c.theta, unlikely, **sizes), batch_law(c, unlikely, **sizes))


def test_on_a_chain_it_is_that_of_its_listed_responses():
    chain = gt.TokenChain([[0, 1], [1, 0]], 3, end_token=0)
    problem = gt.Problem(gt.StateRewards([0.2, 0.8]), chain, theta=[0.3, -0.2, 0.5, 0.1])
    law = gt.gradient_law(problem.listed(), problem.theta, unlikely, batch_size=1, group_size=2)
    runs = gt.simulate_gradients(problem, problem.theta, unlikely, batch_size=1, group_size=2, replications=20_000, rng=7)
    assert abs(runs.mse[0] - law.mse) < 5.0 * runs.mse_standard_error[0]
    with pytest.raises(gt.NotEnumerableError, match="read probabilities"):
        gt.gradient_law(problem, problem.theta, unlikely, batch_size=1, group_size=2)
