"""What is measured of sampled runs on networks: exact success, and cosines of one run a draw."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation import learned_division
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.networks import network_problem, pair_cosines


def test_measures_are_those_of_the_package_and_a_run_that_left_the_numbers_has_no_success():
    problem = network_problem(4, 3)
    theta = problem.theta + 0.1 * np.random.default_rng(0).normal(size=(9, problem.theta.size))
    theta[8] = np.inf
    found = learned_division.measured(problem, theta, 4)
    np.testing.assert_allclose(found[:8, 0], gt.objective(problem, theta[:8]), rtol=1e-12)
    assert found[8].tolist() == [0.0, 1.0]
    assert np.flatnonzero(found[:, 1] < 1.0).tolist() == [0, 4], "one of four is looked at"
    for run in (0, 4):
        gradients = gt.moments(problem, theta[run]).prompt_gradients
        assert found[run, 1] == pytest.approx(near_orthogonal(pair_cosines(gradients)))


def test_runs_are_the_simulators():
    """A draw's success is the mean of runs on its network, at each step and budget; the broken arm descends."""
    problem, seed = network_problem(4, 5, mixture="easy"), np.random.SeedSequence(1)
    success, shares = learned_division.of_draw(problem, "plain", [1.0, 4.0], [2, 4], 16, seed)
    assert success.shape == shares.shape == (2, 2)
    alone, _ = learned_division.of_draw(problem, "plain", [4.0], [2, 4], 16, seed)
    np.testing.assert_allclose(success[1:], alone, rtol=1e-12)
    start = gt.objective(problem, problem.theta)
    assert success[1, 1] > success[1, 0] > start
    lost, _ = learned_division.of_draw(problem, "broken", [4.0], [2, 4], 16, seed)
    assert lost[0, 0] < start
