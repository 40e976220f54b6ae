"""The race with and without division: its exact arm, its broken arm, and what Adam makes of a factor."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch
from grpo_theory.theory import noise_free_path
from simulations.normalisation.prompts import mixture, prompts
from simulations.normalisation.race import ARMS, EVERY, EXACT, exact_success, out_of_step, success


def hard():
    return prompts(0.7, mixture("hard", 4))


def test_exact_plain_training_is_the_noise_free_path():
    problem = hard()
    path = noise_free_path(problem, problem.theta, np.full(8, 3.0))
    expected = gt.objective(problem, path[EVERY::EVERY]).mean()
    assert exact_success(problem, "plain", gt.SGD(), 3.0, 8) == pytest.approx(expected, abs=1e-13)


def test_exact_division_is_what_large_groups_tend_to():
    problem = hard()
    divided = exact_success(problem, "divided", gt.SGD(), 0.01 / EVERY, EVERY)
    moved = problem.theta + 0.01 * gt.gradient_mean(problem, problem.theta, "grpo", batch_size=1, group_size=4096)
    start = gt.objective(problem, problem.theta)
    assert divided - start == pytest.approx(gt.objective(problem, moved) - start, rel=0.02)


def test_the_broken_arm_gives_each_advantage_to_the_response_before():
    rewards = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]])
    found, own = np.empty((2, 2, 4))
    out_of_step(Batch(rewards, *[np.empty(0)] * (len(Batch._fields) - 1)), found)
    deviations = rewards.std(axis=1, ddof=1, keepdims=True)
    own = (rewards - rewards.mean(axis=1, keepdims=True)) / deviations
    np.testing.assert_allclose(found, np.roll(own, -1, axis=1), atol=1e-14)


def test_with_two_responses_division_is_a_factor_which_adam_drops():
    settings = {"correlation": 0.7, "mixture": "easy and hard", "group_size": 2, "contest": "Adam", "updates": 16}
    both = [success(settings, arm, 0.1, 16, np.random.SeedSequence(1)) for arm in ("plain", "divided")]
    np.testing.assert_allclose(*both, atol=1e-6)
    other = success(settings, "broken", 0.1, 16, np.random.SeedSequence(1))
    assert both[0].mean() > other.mean()


def test_groups_of_no_size_stand_for_exact_gradients():
    settings = {"correlation": 0.0, "mixture": "easy", "group_size": EXACT, "contest": "SGD", "updates": 4}
    assert len(success(settings, "plain", 1.0, 16, np.random.SeedSequence(1))) == 1
    assert set(ARMS) == {"plain", "divided", "broken"}
