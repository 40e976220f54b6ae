"""The bandit, the penalty, and the problem that bundles them with a policy: what they hold."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case, prompts
from scipy.special import rel_entr

import grpo_theory as gt


def test_a_bandit_has_the_law_of_its_success_rates():
    bandit = gt.Bandit([[0.3, 0.8], [0.0, 1.0], [0.5, 0.25]])
    assert (bandit.n_prompts, bandit.n_responses, bandit.values.tolist()) == (3, 2, [0.0, 1.0])
    assert bandit.mean_reward.tolist() == [[0.3, 0.8], [0.0, 1.0], [0.5, 0.25]]
    graded = gt.Bandit.from_law([0, 1, 2], [[[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]])
    np.testing.assert_allclose(graded.mean_reward, [[1.3, 0.0]], rtol=1e-15)


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
        scores = np.einsum("kd,de->ke", point.logit_gradients[m], c.features[m])
        np.testing.assert_allclose(scores[point.outcome_responses], table.scores, rtol=1e-12, atol=1e-14)


def test_the_divergence_of_sequences_is_a_sum_over_their_tokens():
    """Of whole responses: log(pi/reference) is the sum of the tokens' logs, with the reference's own conditionals."""
    rng, strength = np.random.default_rng(2), 0.4
    tree = gt.TokenTree(2, 2, 2, end_token=0)
    reference = rng.dirichlet(np.ones(tree.n_responses), size=2)
    problem = gt.Problem(gt.Bandit(rng.uniform(size=(2, 3))), tree, gt.KL(strength, reference), rng.normal(size=8))
    point = problem.at(problem.theta)
    assert tree.responses == ((0,), (1, 0), (1, 1))
    assert tree.prefixes == ((), (1,))
    # Edges: 0 and 1 at the empty prefix, 0 and 1 after token 1.
    after = reference[:, 1] + reference[:, 2]
    conditionals = np.stack([reference[:, 0], after, reference[:, 1] / after, reference[:, 2] / after], axis=-1)
    np.testing.assert_allclose(np.exp(problem.log_reference), conditionals, rtol=1e-13)
    np.testing.assert_allclose(point.penalties, strength * np.log(point.probabilities / reference), rtol=1e-12, atol=1e-14)
    expected = strength * rel_entr(point.probabilities, reference).sum(axis=1)
    np.testing.assert_allclose((point.probabilities * point.penalties).sum(axis=1), expected, rtol=1e-12)
