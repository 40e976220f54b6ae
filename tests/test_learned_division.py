"""What is measured of sampled runs on networks: exact success, and cosines of one run in four."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation import learned_division
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.networks import network_problem, pair_cosines


def test_measures_are_those_of_the_package_and_a_run_that_left_the_numbers_has_none():
    problem = network_problem(4, 3)
    theta = problem.theta + 0.1 * np.random.default_rng(0).normal(size=(9, problem.theta.size))
    theta[8] = np.inf
    found = learned_division._measured(problem, theta)
    np.testing.assert_allclose(found[:8, 0], gt.objective(problem, theta[:8]), rtol=1e-12)
    assert found[8, 0] == 0.0
    looked = np.isfinite(found[:, 1])
    assert np.flatnonzero(looked).tolist() == [0, 4]
    for run in (0, 4):
        gradients = gt.moments(problem, theta[run]).prompt_gradients
        assert found[run, 1] == pytest.approx(near_orthogonal(pair_cosines(gradients)))
        assert found[run, 2] == 1.0


def test_runs_are_the_simulators():
    """The same seed trains the same runs, whose success at the last budget is that of the simulator's mean."""
    problem = network_problem(4, 3)
    short = learned_division._trained(problem, "plain", [2, 4], 4.0, 1, 16, np.random.SeedSequence(1))
    both = learned_division._trained(problem, "plain", [2, 4], 4.0, 2, 16, np.random.SeedSequence(1))
    np.testing.assert_array_equal(short[:, 0], both[:, 0])
    assert both[:, 1, 0].mean() > both[:, 0, 0].mean() > gt.objective(problem, problem.theta)
    lost = learned_division._trained(problem, "broken", [4], 4.0, 1, 16, np.random.SeedSequence(1))
    assert lost[:, 0, 0].mean() < gt.objective(problem, problem.theta)
