"""The worlds of whole runs have what their dials say."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.runs.arms import graded
from simulations.runs.worlds import ALL, LEARNED, LONG, StepsWorld, World


def rates(problem: gt.Problem) -> np.ndarray:
    """Return each prompt's success rate at the start."""
    return (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)


@pytest.mark.parametrize(
    ("name", "held_out"), [(name, held_out) for name in ALL for held_out in (False, True) if name != LEARNED or not held_out]
)
def test_success_rates_are_spread_evenly_in_their_logarithm(name, held_out):
    world = ALL[name]
    problem = world.problem(held_out=held_out)
    count = world.held_out if held_out else world.prompts
    np.testing.assert_allclose(rates(problem), np.geomspace(world.easiest, world.rarest, count), rtol=1e-9)


def test_wrong_rewards_turn_the_share_that_is_asked_for_and_leave_the_truth_as_it_is():
    world = World(prompts=3, answers=5, wrong=0.1)
    wrong, true = world.graded(), world.problem()
    np.testing.assert_allclose(wrong.bandit.mean_reward, np.where(true.bandit.mean_reward == 1.0, 0.9, 0.1))
    np.testing.assert_array_equal(true.bandit.mean_reward.sum(axis=1), 1.0)
    # Of the rarest prompt's rewards, nearly all that are 1 are wrong ones.
    rewarded = wrong.at(wrong.theta).value[-1]
    assert rewarded == pytest.approx(0.9 * world.rarest + 0.1 * (1.0 - world.rarest))
    assert all((graded(name).bandit.mean_reward % 1.0 == 0.0).all() for name in (LONG, LEARNED, "shared"))


def test_an_answer_of_many_tokens_is_right_if_all_are_and_ends_with_the_first_wrong_one():
    world = StepsWorld(prompts=4, tokens=5)
    problem = world.problem()
    rewards = dict(zip(problem.policy.responses, problem.bandit.mean_reward[0], strict=True))
    assert {response for response, reward in rewards.items() if reward} == {(1, 1, 1, 1, 1)}
    assert sorted(map(len, rewards)) == [1, 2, 3, 4, 5, 5]
    weights = np.exp(problem.policy.logits(problem.theta)).reshape(4, 5, 2)
    right = weights[..., 1] / weights.sum(axis=-1)
    np.testing.assert_allclose(right**5, np.broadcast_to(np.geomspace(0.5, 1e-3, 4)[:, None], (4, 5)))


def test_a_network_starts_with_the_rates_that_are_asked_for_and_learns_its_features():
    world = ALL[LEARNED]
    problem = world.problem()
    moved = problem.theta + 0.1 * gt.moments(problem, problem.theta).gradient
    network = problem.policy.network
    assert np.abs(network.hidden(moved) - network.hidden(problem.theta)).max() > 1e-4
    with pytest.raises(ValueError, match="held_out must be False"):
        world.problem(held_out=True)
