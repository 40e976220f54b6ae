"""The study of learned features: its courses against the package's own gradients, and its frozen policy against a linear one."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import gradient
from simulations.normalisation import learned_features
from simulations.normalisation.learned_features import course
from simulations.normalisation.networks import PROMPTS, STRIDE, network_problem


def test_inputs_have_the_printed_cosines_and_prompts_start_easy_or_hard():
    problem = network_problem(16, 3)
    unit = problem.policy.network.inputs / np.linalg.norm(problem.policy.network.inputs, axis=1, keepdims=True)
    assert np.abs((unit @ unit.T)[np.triu_indices(PROMPTS, 1)]).mean() == pytest.approx(0.088, abs=0.005)
    value = gt.moments(problem, problem.theta).value
    np.testing.assert_allclose(sorted(value), [0.125] * (PROMPTS // 2) + [0.5] * (PROMPTS // 2))
    other = network_problem(16, 3, draw=1)
    np.testing.assert_array_equal(other.bandit.mean_reward, problem.bandit.mean_reward)
    assert np.abs(other.theta - problem.theta).max() > 0.1


def test_courses_are_those_of_exact_gradients(monkeypatch):
    """Two updates of the network, and of the linear policy with the features of its start, by the package's gradient."""
    network = network_problem(4, 3)
    linear = gt.Problem(network.bandit, gt.Policy(network.policy.tangent(network.theta)))
    for problem, start, arm in ((network, network.theta, "plain"), (linear, linear.theta, "features of the start")):
        theta, step = start, 0.0
        successes = [gt.objective(problem, theta)]
        for _ in range(2):
            push = PROMPTS * gradient(problem, theta)
            step = step or STRIDE * np.sqrt(PROMPTS) / np.linalg.norm(problem.policy.logit_slopes(theta, push))
            theta = theta + step * push
            successes.append(gt.objective(problem, theta))
        found = list(course(network, arm, [0, 1, 2]))
        np.testing.assert_allclose([success for success, _ in found], successes, rtol=1e-12)
        powers = gt.moments(problem, theta).prompt_gradients
        unit = powers / np.linalg.norm(powers, axis=1, keepdims=True)
        np.testing.assert_allclose(found[-1][1], (unit @ unit.T)[np.triu_indices(PROMPTS, 1)], atol=1e-12)


def test_a_quick_look_has_rows_and_comparisons_of_every_kind():
    (cell,) = learned_features.cells(quick=True)
    found = list(learned_features.compare(cell.settings))
    rows = [row for row in found if isinstance(row, dict)]
    assert {row["arm"] for row in rows} == set(learned_features.ARMS)
    assert {one.statement for one in found if not isinstance(one, dict)} == {
        "N11/learned features",
        "N11/features",
        "N12/III, learned features",
    }
