"""The studies of rates: shared ascent against the library, exact means along paths against runs, and verdicts of the evidence."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation import one_step, path_sums
from simulations.normalisation.ascent import Prompts, Step
from simulations.normalisation.prompts import mixture, prompts


def test_ascent_has_the_gradients_of_the_library():
    problem = prompts(0.3, mixture("easy and hard", 4))
    theta = problem.theta + 0.3 * np.random.default_rng(0).normal(size=(5, problem.policy.dimension))
    state = Prompts.of(problem).at(theta)
    for run, at in enumerate(theta):
        moments = gt.moments(problem, at)
        np.testing.assert_allclose(state.success[run], moments.value, rtol=1e-12)
        np.testing.assert_allclose(state.variance[run], moments.value * (1.0 - moments.value), rtol=1e-12)
        # the library's gradients of a prompt are of its own success
        np.testing.assert_allclose(state.gradients[run], moments.prompt_gradients, atol=1e-14)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_a_step_is_the_gradient_divided(power):
    problem = Prompts.of(prompts(0.3, [0.2, 0.6]))
    theta = np.tile(problem.theta, (2, 1))
    state = problem.at(theta)
    moved = problem.step(theta, state, np.array([1, 0]), Step(0.7, power)) - theta
    expected = [0.7 * state.gradients[0, 1] / (0.24**power), 0.7 * state.gradients[1, 0] / (0.16**power)]
    np.testing.assert_allclose(moved, expected, rtol=1e-12)


@pytest.mark.parametrize("arm", ["plain", "divided"])
def test_exact_means_along_paths_are_those_of_runs(arm):
    """All prompts trained together, one drawn at a time, against the law of how often each is drawn; 2,000 runs, 4.9 errors."""
    rates, horizon, runs = [0.5, 0.02, 0.5, 0.02], 60, 2000
    problem, step, rng = Prompts.of(prompts(0.0, rates)), path_sums.ARMS[arm], np.random.default_rng(1)
    theta, total = np.tile(problem.theta, (runs, 1)), np.zeros((runs, 4))
    for _ in range(horizon):
        state = problem.at(theta)
        total += state.squares
        theta = problem.step(theta, state, rng.integers(4, size=runs), step)
    law = path_sums.counts_law(horizon, 4)
    success = problem.at(theta).success
    for i, rate in enumerate(rates[:2]):
        own = path_sums.own_path(rate, step, law.shape[1])
        for drawn, exact in ((total[:, i], (law @ own[2])[:-1].sum()), (success[:, i], (law @ own[0])[-1])):
            assert abs(drawn.mean() - exact) < 4.9 * drawn.std(ddof=1) / np.sqrt(runs)


@pytest.mark.parametrize("answers", [2, 5])
def test_gains_of_one_step_are_those_of_the_library(answers):
    features, theta = one_step.draw(answers, 20, np.random.default_rng(2))
    theta /= 4.0
    np.testing.assert_allclose(np.linalg.norm(features, 2, axis=(1, 2)), 1.0, rtol=1e-12)
    for step in one_step.STEPS.values():
        exact, first_order = one_step.gains(features, theta, step)
        for i, (x, at) in enumerate(zip(features, theta, strict=True)):
            problem = gt.Problem(gt.Bandit(np.eye(answers)[:1]), gt.LinearSoftmax(x[None]))
            before = gt.moments(problem, at)
            p = before.value[0]
            moved = at + step.size * before.gradient / (p * (1.0 - p)) ** step.power
            np.testing.assert_allclose(exact[i], gt.moments(problem, moved).value[0] - p, atol=1e-14)
            np.testing.assert_allclose(first_order[i], before.gradient @ (moved - at), rtol=1e-9)
