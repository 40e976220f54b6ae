"""The closed forms of theory against enumeration, at 1e-12; each with a wrong constant that must fail."""

import numpy as np
import pytest
from enumeration import CASES, batch_law, case, prompts

import grpo_theory as gt
from grpo_theory.theory import (
    baseline_trace,
    break_even_group_size,
    leave_one_out_covariance,
    leave_one_out_traces,
    own_mean_mse,
    remainder_bound,
)

every_case = pytest.mark.parametrize(("policy", "rewards", "penalty"), CASES)
NAMED = gt.estimators()


def exact(c):
    return gt.moments(c.problem, c.theta)


@pytest.mark.parametrize(("batch_size", "group_size"), [(1, 2), (3, 3)])
@every_case
def test_leave_one_out_covariance(policy, rewards, penalty, batch_size, group_size):
    c = case(policy, rewards, penalty)
    covariance = batch_law(c, NAMED["rloo"], batch_size, group_size).covariance
    found = leave_one_out_covariance(c.problem, c.theta, batch_size=batch_size, group_size=group_size)
    np.testing.assert_allclose(found, covariance, rtol=1e-12, atol=1e-14)
    wrong = leave_one_out_covariance(c.problem, c.theta, batch_size=batch_size, group_size=group_size + 1)
    assert np.abs(wrong - covariance).max() > 1e-4


@every_case
def test_own_mean_mse(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    mse = batch_law(c, NAMED["dr_grpo"], 3, 3).mse
    assert own_mean_mse(exact(c), batch_size=3, group_size=3) == pytest.approx(mse, rel=1e-12)
    leave_one_out = batch_law(c, NAMED["rloo"], 3, 3).mse
    assert own_mean_mse(exact(c), batch_size=3, group_size=3) != pytest.approx(leave_one_out, rel=1e-3)


@every_case
def test_baseline_trace(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    for constant in (-1.0, 0.0, 0.3, 2.0):
        traces = []
        for prompt in prompts(c):
            p, z, w, gradient = prompt.probabilities, prompt.rewards, prompt.scores, prompt.gradient
            scaled = w * (z - constant)[:, None]
            traces.append(p @ (scaled**2).sum(axis=1) - gradient @ gradient)
        np.testing.assert_allclose(baseline_trace(exact(c), constant), traces, rtol=1e-12, atol=1e-14)


def test_remainder_bound_is_within_a_small_factor_of_tight():
    """Two arms, reward 0 or 1 for sure, G = 2: the remainder is half the bound, so a third of it fails."""
    m = gt.moments(gt.Problem(gt.Bandit([[0.0, 1.0]]), gt.TabularSoftmax(1, 2)), np.zeros(2))
    remainder = leave_one_out_traces(m, 2) - m.oracle_trace / 2
    assert remainder_bound(m, 2, 1.0) >= remainder
    assert remainder_bound(m, 2, 1.0) / 3 < remainder


def test_break_even_group_size_parts_the_winners():
    problem = gt.Problem(gt.Bandit([[0.1, 0.2], [0.15, 0.05]]), gt.TabularSoftmax(2, 2))
    theta = np.array([0.2, -0.4, 0.3, 0.0])
    m = gt.moments(problem, theta)
    even = break_even_group_size(m)
    assert 3.0 < even < 60.0
    for group_size in range(2, 64):
        mse = {n: gt.gradient_mse(problem, theta, n, batch_size=3, group_size=group_size) for n in ("rloo", "reinforce")}
        assert (mse["rloo"] < mse["reinforce"]) == (group_size > even)
