"""Several rewards apart: the law by enumeration of all groups, the sum in one column, and what is refused."""

import itertools

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation import apart

REWARDS, WEIGHTS = np.array([[0.0, 2.0], [1.0, 2.0], [0.0, -1.0], [1.0, 0.0]]), np.array([1.0, 0.4])
LAW = np.random.default_rng(0).dirichlet(np.ones(4), size=(1, 3))


PROBLEM = gt.Problem(
    gt.Bandit.from_law(range(4), LAW),
    gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0),
    theta=[0.3, -0.2, 0.5, 0.1],
    objective=gt.Objective.mean_of(REWARDS @ WEIGHTS),
)
GDPO = apart("gdpo_test", advantage="grpo", rewards=REWARDS, weights=WEIGHTS)


def standardised(values):
    deviation = np.std(values, ddof=1)
    return (values - values.mean()) / (deviation + 1e-4) if deviation > 0.0 else 0.0 * values


def test_the_law_is_that_of_all_groups():
    point = PROBLEM.at()
    scores, chances = PROBLEM.policy.scores(PROBLEM.theta)[0], point.outcome_probabilities[0]
    mean, second = np.zeros(4), np.zeros((4, 4))
    for group in map(list, itertools.product(range(12), repeat=3)):
        rewards = REWARDS[np.array(group) % 4]
        advantages = sum(w * standardised(own) for w, own in zip(WEIGHTS, rewards.T, strict=True))
        estimate = advantages @ scores[np.array(group) // 4] / 3.0
        chance = chances[group].prod()
        mean, second = mean + chance * estimate, second + chance * np.outer(estimate, estimate)
    sizes = {"batch_size": 1, "group_size": 3}
    law = gt.gradient_law(PROBLEM, None, GDPO, **sizes)
    np.testing.assert_allclose(law.mean, mean, atol=1e-13)
    np.testing.assert_allclose(law.covariance(), second - np.outer(mean, mean), atol=1e-12)
    np.testing.assert_allclose(gt.gradient_mean(PROBLEM, None, GDPO, **sizes), mean, atol=1e-13)
    worth = LAW[0] @ REWARDS @ WEIGHTS
    np.testing.assert_allclose(law.true_gradient, point.probabilities[0] * worth @ scores, atol=1e-14)
    found = gt.simulate_gradients(PROBLEM, None, GDPO, **sizes, replications=20_000, rng=1)
    assert abs(found.mse[0] - law.mse) < 4.9 * found.mse_standard_error[0]


def test_one_column_of_sums_is_the_sum_normalised():
    """And with weights the parameters of the kernel, its clip and its aggregation stay what they are."""
    sums = np.array([[0.0], [1.0], [1.0], [2.0]])
    base = gt.estimators()["dapo"].with_parameters(epsilon=0.3)
    summed = apart("summed_test", advantage=base, rewards=sums)
    graded = gt.Problem(gt.Bandit.from_law([0.0, 1.0, 2.0], LAW @ np.eye(3)[[0, 1, 1, 2]]), PROBLEM.policy, theta=PROBLEM.theta)
    apart_law, law = (
        gt.gradient_law(problem, None, one.at_lengths(np.ones(1, dtype=int)), batch_size=2, group_size=4, behaviour=np.zeros(4))
        for problem, one in ((PROBLEM, summed), (graded, base))
    )
    np.testing.assert_allclose(apart_law.mean, law.mean, atol=1e-14)
    assert apart_law.trace == pytest.approx(law.trace, rel=1e-12)
    assert summed.with_parameters(epsilon=1.0).name == "summed_test(epsilon=1.0)"
    milder = gt.advantages([[0, 3]], summed.with_parameters(epsilon=1.0))[0]
    np.testing.assert_allclose(milder, np.array([-1.0, 1.0]) / (1.0 + np.sqrt(2.0)), atol=1e-15)
    hessian, worth = gt.hessian(PROBLEM), LAW @ REWARDS @ WEIGHTS
    plain = gt.Problem(gt.Bandit.from_law(worth[0], np.eye(3)[None]), PROBLEM.policy, theta=PROBLEM.theta)
    np.testing.assert_allclose(hessian, gt.hessian(plain), atol=1e-14)


def test_what_is_no_row_is_refused():
    penalised = gt.Problem(PROBLEM.bandit, PROBLEM.policy, gt.KL(0.1, [[0.2, 0.5, 0.3]]), objective=PROBLEM.objective)
    sizes = {"batch_size": 1, "group_size": 2}
    in_loss = gt.compose("gdpo_in_loss_test", advantage=GDPO, kl="k3 in loss", overwrite=True)
    assert gt.gradient_law(penalised, None, in_loss, **sizes).mse > 0.0
    for ask, told in (
        (lambda: gt.gradient_law(penalised, None, GDPO, **sizes), r"gdpo_test.* must fill finite advantages"),
        (lambda: gt.simulate_gradients(penalised, None, GDPO, **sizes, replications=2), r"gdpo_test.* must fill finite"),
        (lambda: gt.advantages([[0.0, 4.0]], GDPO), r"gdpo_test.* gives .*nan"),
        (lambda: apart("x", advantage="oracle", rewards=REWARDS), "advantage must not be an oracle's"),
        (lambda: apart("x", advantage="grpo", rewards=REWARDS, weights=[1.0]), r"weights must have shape .*\(R,\)"),
        (lambda: apart("x", advantage="grpo", rewards=[0.0, 1.0]), "rewards must"),
    ):
        with pytest.raises(ValueError, match=told):
            ask()
