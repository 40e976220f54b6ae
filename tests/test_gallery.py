"""The gallery: every problem is whole, the same each time, and what its description says."""

import numpy as np
import pytest
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.gallery import names, problem

SMALL = [name for name in names() if not name.startswith("lm-")]


def values(name):
    p = problem(name)
    return gt.moments(p.bandit, p.policy, p.theta)


@pytest.mark.parametrize("name", names())
def test_every_problem_is_whole(name):
    p = problem(name)
    assert p.name == name
    assert p.title
    assert p.theta.shape == (p.policy.dimension,)
    assert (p.bandit.n_prompts, p.bandit.n_responses) == (p.policy.n_prompts, p.policy.n_responses)
    m = gt.moments(p.bandit, p.policy, p.theta)
    assert np.isfinite(m.gradient).all()
    assert m.gradient_power > 0.0
    law = gt.group_size_law(p.bandit, p.policy, p.theta)
    assert float(law.mse(2, 4)) == pytest.approx(
        gt.gradient_mse(p.bandit, p.policy, p.theta, "rloo", batch_size=2, group_size=4), rel=1e-11
    )


@pytest.mark.parametrize("name", SMALL)
def test_problems_are_the_same_each_time(name):
    one, other = problem(name), problem(name)
    assert np.array_equal(one.theta, other.theta)
    assert np.array_equal(one.bandit.probabilities, other.bandit.probabilities)
    assert np.array_equal(one.bandit.prompt_weights, other.bandit.prompt_weights)


def test_names():
    assert len(set(names())) == len(names())
    assert [name for name in names() if name.startswith("lm-")] == ["lm-zero-shot", "lm-few-shot", "lm-instruct"]


def test_two_arms():
    p = problem("two-arms")
    np.testing.assert_allclose(p.policy.probabilities(p.theta), [[1 / 3, 2 / 3]], rtol=1e-14)
    assert values("two-arms").value == pytest.approx([19 / 30], rel=1e-14)


def test_uniform_meets_assumption_2_exactly():
    assert values("uniform").score_reward_correlation.tolist() == [0.0] * 6
    assert np.abs(values("tabular").score_reward_correlation).max() > 0.1


def test_graded_has_three_values():
    assert problem("graded").bandit.values.tolist() == [0.0, 1.0, 2.0]


def test_mixed_difficulty_runs_from_hardly_ever_to_nearly_always():
    np.testing.assert_allclose(values("mixed").value, expit(np.linspace(-4, 4, 8)), rtol=1e-12)


def test_linear_shares_its_features():
    p = problem("linear")
    assert p.policy.dimension < p.bandit.n_prompts * p.bandit.n_responses


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of two-arms, .*, lm-instruct, got 'three-arms'"):
        problem("three-arms")
