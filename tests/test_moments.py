"""Exact moments: by hand, by enumeration, and by finite differences."""

import numpy as np
import pytest
from enumeration import CASES, TREES, case, prompts

import grpo_theory as gt


@pytest.mark.parametrize(("policy", "rewards", "penalty"), CASES + TREES)
def test_moments_are_sums_over_the_outcomes(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    found = gt.moments(c.problem, c.theta)
    for m, prompt in enumerate(prompts(c)):
        p, z, w, value, deviation, baseline, gradient = prompt[:7]
        norms = (w**2).sum(axis=1)
        covariance = sum(p * (norms - sum(p * norms)) * (z - value))
        spread = np.sqrt(sum(p * (norms - sum(p * norms)) ** 2)) * deviation
        expected = {
            "value": value,
            "standard_deviation": deviation,
            "optimal_baseline": baseline,
            "prompt_gradients": gradient,
            "prompt_gradient_squared_norm": gradient @ gradient,
            "score_squared_norm": sum(p * norms),
            "score_reward_squared_norm": sum(p * norms * z),
            "oracle_trace": sum(p * norms * (z - value) ** 2) - gradient @ gradient,
        }
        for name, number in expected.items():
            np.testing.assert_allclose(getattr(found, name)[m], number, rtol=1e-12, atol=1e-14, err_msg=name)
        # With two tabular responses of one policy the norms can tie; the correlation is then 0 by definition.
        correlation = covariance / spread if spread > 1e-9 else 0.0
        assert found.score_reward_correlation[m] == pytest.approx(correlation, abs=1e-10)
    mean = sum(f * t.gradient for f, t in zip(c.bandit.prompt_weights, prompts(c), strict=True))
    np.testing.assert_allclose(found.gradient, mean, rtol=1e-12, atol=1e-15)
    between = sum(f * ((t.gradient - mean) ** 2).sum() for f, t in zip(c.bandit.prompt_weights, prompts(c), strict=True))
    assert found.between_prompts == pytest.approx(between, rel=1e-12)


def test_norms_equal_up_to_rounding_leave_no_correlation():
    """Rotated one-hot features: the norms differ in their last bits, and a correlation of last bits means nothing."""
    rng = np.random.default_rng(6)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    problem = gt.Problem(gt.Bandit(rng.uniform(size=(1, 5))), gt.LinearSoftmax(rotation[None]))
    norms = (problem.policy.scores(np.zeros(5)) ** 2).sum(axis=-1)
    assert 0.0 < np.ptp(norms) < 1e-14
    assert 0.0 < np.ptp(problem.at(np.zeros(5)).squared_score_norms) < 1e-14
    found = gt.moments(problem, np.zeros(5))
    assert found.score_reward_correlation.tolist() == [0.0]
