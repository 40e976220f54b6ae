"""Groups whose size depends on their rewards, against all samples that a stopping loop can meet."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt

SUCCESS = np.array([[0.7, 0.1], [0.3, 0.6]])
PROBLEM = gt.Problem(gt.Bandit(SUCCESS, [0.4, 0.6]), gt.TabularSoftmax(2, 2), theta=np.array([0.4, 0.0, -0.7, 0.2]))
SHARED = gt.Problem(
    gt.Bandit(SUCCESS, [0.4, 0.6]),
    gt.LinearSoftmax([[[1.0, 0.2], [0.0, 0.3]], [[0.5, -1.0], [0.1, 0.4]]]),
    theta=np.array([0.3, 0.2]),
)


def estimate(problem, q, answers, rewards):
    """Return the leave-one-out estimate of one group, shape (d,)."""
    point = problem.at(problem.theta)
    logits = np.eye(2)[list(answers)] - point.probabilities[q]
    n, z = len(rewards), np.array(rewards)
    logit_gradient = ((n * z - z.sum()) / (n - 1)) @ logits / n
    return problem.policy.logit_map.adjoint(np.eye(2)[q][:, None] * logit_gradient)


def samples(problem, q, n):
    """Yield all (chance, answers, rewards) of n responses to a prompt."""
    pi = problem.at(problem.theta).probabilities[q]
    for answers in product(range(2), repeat=n):
        for rewards in product((0.0, 1.0), repeat=n):
            right = SUCCESS[q][list(answers)]
            yield np.prod(pi[list(answers)] * np.where(np.array(rewards) > 0, right, 1.0 - right)), answers, rewards


def batch_moments(per_prompt):
    """Return the mean and the power of the batch of independent groups, from (chance, estimate) of each prompt."""
    f, mean, power = PROBLEM.bandit.prompt_weights, 0.0, 0.0
    for (p, one), (r, other) in product(*per_prompt):
        both = f[0] * one + f[1] * other
        mean, power = mean + p * r * both, power + p * r * (both @ both)
    return mean, power


@pytest.mark.parametrize("problem", [PROBLEM, SHARED])
@pytest.mark.parametrize("low", [2, 3])
def test_the_first_mixed_group_by_all_sequences(problem, low):
    high, per_prompt, sizes = 4, [], []
    for q in range(2):
        found, size = [], 0.0
        for chance, answers, rewards in samples(problem, q, high):
            n = next((n for n in range(low, high) if len(set(rewards[:n])) > 1), high)
            found.append((chance, estimate(problem, q, answers[:n], rewards[:n])))
            size += chance * n
        per_prompt.append(found)
        sizes.append(size)
    mean, power = batch_moments(per_prompt)
    law = gt.exact.first_mixed_groups(problem, problem.theta, low=low, high=high)
    np.testing.assert_allclose(law.responses, sizes, rtol=1e-12)
    np.testing.assert_allclose(law.mean, mean, atol=1e-14)
    assert law.mean_squared_norm == pytest.approx(power, rel=1e-12)
    gradient = gt.moments(problem, problem.theta).gradient
    assert law.mse == pytest.approx(power - 2.0 * gradient @ mean + gradient @ gradient, rel=1e-12)
    assert law.efficiency == pytest.approx((gradient @ mean) ** 2 / (gradient @ gradient) / power, rel=1e-12)
    assert np.abs(law.slopes - 1.0).max() > 0.05


@pytest.mark.parametrize("problem", [PROBLEM, SHARED])
def test_halving_by_all_sequences(problem):
    """Two prompts with 2 responses each; the one nearer to a half, or the first, gets 2 more."""
    f, mean, power, sizes = problem.bandit.prompt_weights, 0.0, 0.0, np.zeros(2)
    lists = [list(samples(problem, q, 4)) for q in range(2)]
    known = [
        [(c, r[:2], estimate(problem, q, a[:2], r[:2]), estimate(problem, q, a, r)) for c, a, r in lists[q]] for q in range(2)
    ]
    for (p, first, short, long), (r, second, other_short, other_long) in product(*known):
        gaps = [abs(np.mean(first) - 0.5), abs(np.mean(second) - 0.5)]
        goes_on = int(np.argmin(gaps))
        both = f[0] * (long if goes_on == 0 else short) + f[1] * (other_long if goes_on == 1 else other_short)
        mean, power = mean + p * r * both, power + p * r * (both @ both)
        sizes += p * r * np.array([4, 2] if goes_on == 0 else [2, 4])
    law = gt.exact.halved_groups(problem, problem.theta, low=2, rounds=1)
    np.testing.assert_allclose(law.responses, sizes, rtol=1e-10)
    np.testing.assert_allclose(law.mean, mean, atol=1e-13)
    assert law.mean_squared_norm == pytest.approx(power, rel=1e-10)
    assert np.abs(law.slopes - 1.0).max() > 0.02
