"""Exact moments: by hand, by enumeration, and by finite differences."""

from fractions import Fraction

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case, prompts

import grpo_theory as gt

ARMS = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, np.log(2.0)]
CASES = [(p, r, k) for p in POLICIES for r in REWARDS for k in PENALTIES]


def two_arms_by_hand():
    """Sum over the four outcomes of two arms in fractions: probability, reward, ||W||^2, first entry of W."""
    pi, success = (Fraction(1, 3), Fraction(2, 3)), (Fraction(3, 10), Fraction(4, 5))
    first = (1 - pi[0], -pi[0])
    table = [
        (pi[k] * (success[k] if z else 1 - success[k]), Fraction(z), 2 * first[k] ** 2, first[k])
        for k in range(2)
        for z in range(2)
    ]
    return table, lambda f: sum(p * f(z, norm, w) for p, z, norm, w in table)


def test_two_arms_by_hand():
    found = gt.moments(*ARMS)
    _, mean = two_arms_by_hand()
    value = mean(lambda z, n, w: z)
    assert value == Fraction(19, 30)
    gradient = mean(lambda z, n, w: z * w)
    assert gradient == Fraction(-1, 9)
    variance = value * (1 - value)
    power = mean(lambda z, n, w: n)
    norm_variance = mean(lambda z, n, w: (n - power) ** 2)
    covariance = mean(lambda z, n, w: (n - power) * (z - value))
    expected = {
        "value": value,
        "reward_variance": variance,
        "prompt_gradient_power": 2 * gradient**2,
        "score_power": power,
        "score_reward_power": mean(lambda z, n, w: n * z),
        "oracle_power": mean(lambda z, n, w: n * (z - value) ** 2),
        "optimal_baseline": Fraction(7, 15),
        "standard_deviation": float(variance) ** 0.5,
        "oracle_trace": mean(lambda z, n, w: n * (z - value) ** 2) - 2 * gradient**2,
        "score_reward_correlation": float(covariance) / float(norm_variance * variance) ** 0.5,
    }
    for name, number in expected.items():
        np.testing.assert_allclose(getattr(found, name), [float(number)], rtol=1e-14, err_msg=name)
    np.testing.assert_allclose(found.gradient, [-1 / 9, 1 / 9], rtol=1e-14)
    assert found.gradient_power == pytest.approx(2 / 81, rel=1e-14)
    assert found.between_prompts == pytest.approx(0.0, abs=1e-16)


@pytest.mark.parametrize(("policy", "rewards", "penalty"), CASES)
def test_moments_are_sums_over_the_outcomes(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    found = gt.moments(c.problem, c.theta)
    for m, (p, z, w, value, deviation, baseline, gradient) in enumerate(prompts(c)):
        norms = (w**2).sum(axis=1)
        covariance = sum(p * (norms - sum(p * norms)) * (z - value))
        spread = np.sqrt(sum(p * (norms - sum(p * norms)) ** 2)) * deviation
        expected = {
            "value": value,
            "standard_deviation": deviation,
            "optimal_baseline": baseline,
            "prompt_gradients": gradient,
            "prompt_gradient_power": gradient @ gradient,
            "score_power": sum(p * norms),
            "score_reward_power": sum(p * norms * z),
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
