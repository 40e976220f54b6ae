"""The worlds of whole runs have what their dials say."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.runs.worlds import CHAIN, WORLDS, World


def rates(problem: gt.Problem) -> np.ndarray:
    """Return each prompt's success rate at the start."""
    return (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("held_out", [False, True])
def test_success_rates_are_spread_evenly_in_their_logarithm(name, held_out):
    world = WORLDS[name]
    problem = world.problem(held_out=held_out)
    count = world.held_out if held_out else world.prompts
    np.testing.assert_allclose(rates(problem), np.geomspace(world.easiest, world.rarest, count), rtol=1e-9)


def test_frozen_logits_do_not_learn():
    problem = World().problem()
    scores = problem.policy.scores(problem.theta)
    assert (scores[..., -1] ** 2).max() < 1e-3 * (scores[..., :-1] ** 2).sum(axis=-1).max()


def test_features_have_the_transfer_the_coherence_and_the_misled_prompts_that_are_asked_for():
    world = World(prompts=40, answers=6, right=3, coherence=0.8, dimension=2000, transfer=0.25, misled=0.1, held_out=40)
    features = world.problem().policy.jacobian()[..., :-1]
    np.testing.assert_allclose((features**2).sum(axis=-1), 1.0)
    marked = np.isclose(features[..., 0], 0.5)
    np.testing.assert_array_equal(marked, [[True] * 3 + [False] * 3] * 36 + [[False] * 3 + [True] + [False] * 2] * 4)
    between_rights = (features[:36, 0] * features[:36, 1]).sum(axis=-1)
    assert between_rights.mean() == pytest.approx(0.25 + 0.75 * 0.8, abs=0.02)
    between_wrongs = (features[:, 4] * features[:, 5]).sum(axis=-1)
    assert between_wrongs.mean() == pytest.approx(0.0, abs=0.02)


def test_held_out_prompts_have_features_of_their_own_and_the_start_in_common():
    trained, held_out = World().problem(), World().problem(held_out=True)
    np.testing.assert_array_equal(trained.theta, held_out.theta)
    assert np.isclose(trained.policy.jacobian(), held_out.policy.jacobian())[..., 1:-1].mean() < 0.01


def test_a_chain_succeeds_as_often_as_it_says():
    problem = CHAIN.problem()
    assert gt.objective(problem, problem.theta) == pytest.approx(CHAIN.success)
