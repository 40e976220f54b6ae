"""The phases of training: the criterion finds them where they are and nowhere else; training and cosines by definition."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.theory import noise_free_path
from simulations.normalisation.heads import ascent, cosines, gram, near_orthogonal, state
from simulations.normalisation.phases import phases
from simulations.normalisation.prompts import prompts

CURVES = {
    "three phases": ([0.05, 0.04, 0.0, 0.0, -0.02], [0.3, 0.3, 0.2, 0.1, 0.1, 0.1], [0.98, 0.9, 0.8, 0.7, 0.5, 0.4]),
    "no gain": ([0.0] * 5, [0.3] * 6, [0.98] * 6),
    "gain at low deviation": ([0.0, 0.0, 0.05, 0.05, 0.05], [0.3, 0.2, 0.1, 0.1, 0.1, 0.1], [0.98] * 6),
    "gain without orthogonality": ([0.05] * 5, [0.3] * 6, [0.2] * 6),
    "division harms": ([-0.05] * 5, [0.3] * 6, [0.98] * 6),
    "never orthogonal": ([-0.02] * 5, [0.3] * 6, [0.2] * 6),
}
FOUND = {
    "three phases": ["I", "I", "II", "II", "III"],
    "never orthogonal": ["III"] * 5,
}


@pytest.mark.parametrize("name", CURVES)
def test_the_criterion_finds_the_phases_that_are_there_and_no_others(name):
    increases, deviations, shares = CURVES[name]
    narrow = np.array(increases) - 0.001, np.array(increases) + 0.001
    assert phases(*narrow, deviations, shares) == FOUND.get(name, [""] * 5)


def test_training_by_logits_is_training_by_parameters():
    problem = prompts(0.6, [0.5, 0.02, 0.3])
    logits = [now.logits for now in ascent(problem, 0.0, 3, stride=0.3)]
    gradient = gt.moments(problem, problem.theta).gradient
    path = noise_free_path(problem, problem.theta, np.full(3, 0.3 * np.sqrt(3.0) / np.linalg.norm(gradient)))
    np.testing.assert_allclose(logits, problem.policy.logits(path), atol=1e-12)


@pytest.mark.parametrize("power", [-1.0, 1.0])
def test_gradients_are_divided_and_multiplied_by_deviations(power):
    problem = prompts(0.3, [0.5, 0.02, 0.3])
    moments = gt.moments(problem, problem.theta)
    push = (moments.prompt_gradients * np.sqrt(moments.reward_variance)[:, None] ** power).sum(axis=0)
    theta = problem.theta + 0.1 * np.sqrt(3.0) * push / np.linalg.norm(push)
    *_, last = ascent(problem, power, 1, stride=0.1)
    np.testing.assert_allclose(last.logits, problem.policy.logits(theta), atol=1e-12)


def test_cosines_are_those_of_the_prompts_gradients():
    problem = prompts(0.6, [0.5, 0.02, 0.3, 0.4])
    gradients = gt.moments(problem, problem.theta).prompt_gradients
    unit = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    now = state(problem.policy.logits(problem.theta), problem.bandit.mean_reward)
    expected = (unit @ unit.T)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(cosines(gram(problem), now.covectors), expected, atol=1e-12)
    assert near_orthogonal(np.array([-0.5, 0.05, 0.2, -0.09])) == 0.5
