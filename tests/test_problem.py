"""The bandit, and the problem that bundles it with a policy: what they hold, and what they refuse."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case, prompts

import grpo_theory as gt


@pytest.mark.parametrize("name", ["kl-tabular", "sequence-shared"])
def test_at_prompt_keeps_all_but_the_weights(name):
    problem = gt.gallery.problem(name)
    one = problem.at_prompt(1)
    assert one.bandit.prompt_weights.tolist() == [float(m == 1) for m in range(problem.bandit.n_prompts)]
    assert (one.policy, one.kl, one.name, one.title) == (problem.policy, problem.kl, problem.name, problem.title)
    assert np.array_equal(one.theta, problem.theta)
    both, alone = gt.moments(problem, problem.theta), gt.moments(one, problem.theta)
    np.testing.assert_allclose(alone.gradient, both.prompt_gradients[1], rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_tables_of_a_point_are_the_outcomes_written_out(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    point = c.problem.at(c.theta)
    shape, values = point.probabilities.shape, len(c.bandit.values)
    assert point.outcome_responses.tolist() == [k for k in range(shape[1]) for _ in range(values)]
    np.testing.assert_allclose(point.probabilities, c.policy.probabilities(c.theta), rtol=1e-14)
    for m, table in enumerate(prompts(c)):
        np.testing.assert_allclose(point.outcome_probabilities[m], table.probabilities, rtol=1e-13, atol=1e-16)
        np.testing.assert_allclose(point.rewards[m], table.rewards, rtol=1e-13, atol=1e-14)
        norms = (table.scores**2).sum(axis=1)
        np.testing.assert_allclose(point.squared_score_norms[m, point.outcome_responses], norms, rtol=1e-12, atol=1e-14)
        scores = np.einsum("kd,de->ke", point.covectors[m], c.features[m])
        np.testing.assert_allclose(scores[point.outcome_responses], table.scores, rtol=1e-12, atol=1e-14)
