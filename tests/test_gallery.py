"""The gallery: every problem is whole, the same each time, and what its description says."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.problem.gallery import names, problem


def values(name):
    return gt.moments(problem(name), problem(name).theta)


@pytest.mark.parametrize("name", names())
def test_every_problem_is_whole(name):
    p = problem(name)
    assert isinstance(p, gt.Problem)
    assert p.name == name
    assert p.title
    assert p.theta.shape == (p.policy.dimension,)
    assert p.bandit.n_prompts == p.policy.n_prompts
    assert name in names("chain") or p.bandit.n_responses == p.policy.n_responses
    m = gt.moments(p, p.theta)
    assert np.isfinite(m.gradient).all()
    assert m.gradient_squared_norm > 0.0 or name in names("training")
    law = gt.group_size_law(p, p.theta)
    assert float(law.mse(2, 4)) == pytest.approx(gt.gradient_mse(p, p.theta, "rloo", batch_size=2, group_size=4), rel=1e-11)


def test_chains_have_64_tokens_and_succeed_as_often_as_is_said():
    kinds = {"chain-copy": 0.6, "chain-goal-walk": 0.5, "chain-think-until-sure": 0.5, "chain-bigram-text": 0.3}
    assert names("chain") == (*kinds, "chain-network")
    for name, success in kinds.items():
        p = problem(name)
        assert p.policy.horizon == p.policy.lengths.max() == 64
        assert float(gt.objective(p, p.theta)) == pytest.approx(success, rel=1e-9)
    before = problem("chain-network")
    assert before.policy.horizon == 64
    np.testing.assert_allclose(before.at(before.theta).state_probabilities, 1.0 / 3.0, rtol=1e-12)


@pytest.mark.parametrize("name", ["uncorrelated-tabular", "uncorrelated-linear"])
def test_assumption_2_is_met_though_norms_and_rewards_vary(name):
    p, m = problem(name), values(name)
    assert np.abs(m.score_reward_correlation).max() < 1e-14
    norms = (p.policy.scores(p.theta) ** 2).sum(axis=-1)
    assert (norms.std(axis=1) > 0.05 * norms.mean(axis=1)).all()
    assert (p.bandit.mean_reward.std(axis=1) > 0.03).all()
    moved = gt.moments(p, 1.1 * p.theta)
    assert np.abs(moved.score_reward_correlation).max() > 1e-3


def test_balanced_meets_the_assumption_of_corollary_10_at_its_maximiser_with_prompts_that_disagree():
    p = problem("balanced")
    best = gt.find_optimum(p, p.theta)
    np.testing.assert_allclose(best, [0.3, -0.2], atol=1e-12)
    point = p.at(best)
    scores = p.policy.scores(best)[:, point.outcome_responses]
    centred = point.outcome_probabilities * (point.rewards - point.moments.value[:, None])
    covariance = np.einsum("mo,moi,moj->mij", centred, scores, scores)
    assert np.abs(covariance).max() < 1e-14
    assert np.linalg.norm(point.moments.prompt_gradients, axis=1).min() > 1e-3
    strength, reference = p.kl.strength, np.einsum("mo,moi,moj->ij", point.outcome_probabilities, scores, scores) / 3.0
    np.testing.assert_allclose(gt.exact.check_optimum(p, best)[0], strength * np.linalg.eigvalsh(reference), rtol=1e-9)
