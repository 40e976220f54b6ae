"""The gallery: every problem is whole, the same each time, and what its description says."""

import numpy as np
import pytest
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.problem.gallery import TAGS, crowd, names, problem

LISTED = [name for name in names() if name not in names("chain")]
SMALL = [name for name in names() if not name.startswith("lm-")]


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
    assert m.gradient_power > 0.0 or name in names("training")
    law = gt.group_size_law(p, p.theta)
    assert float(law.mse(2, 4)) == pytest.approx(gt.gradient_mse(p, p.theta, "rloo", batch_size=2, group_size=4), rel=1e-11)


@pytest.mark.parametrize("name", SMALL)
def test_problems_are_the_same_each_time(name):
    one, other = problem(name), problem(name)
    assert np.array_equal(one.theta, other.theta)
    law = "state_probabilities" if name in names("chain") else "probabilities"
    assert np.array_equal(getattr(one.bandit, law), getattr(other.bandit, law))
    assert np.array_equal(one.bandit.prompt_weights, other.bandit.prompt_weights)
    assert (one.kl is None) == (other.kl is None)
    assert one.kl is None or np.array_equal(one.kl.reference, other.kl.reference)


def test_names():
    assert gt.gallery.names is names
    assert len(set(names())) == len(names())
    assert names("language model") == ("lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
    assert names("language model") == tuple(name for name in names() if name.startswith("lm-"))
    titles = [problem(name).title for name in names()]
    assert len(set(titles)) == len(titles)


def test_every_problem_has_a_purpose_and_tags_narrow_the_names():
    purposes = ("gradient", "training", "assumption", "off policy", "learned features")
    assert {name for tag in purposes for name in names(tag)} - set(names("chain")) == set(LISTED)
    assert all(names("chain", tag) == () for tag in TAGS if tag not in ("chain", "learned features"))
    assert names("learned features") == ("network", "chain-network")
    assert all((name in names("learned features")) != problem(name).policy.is_linear for name in names())
    assert names("assumption") == ("uncorrelated-tabular", "uncorrelated-linear", "balanced")
    assert names("assumption", "training") == ("balanced",)
    assert names("sequence") == ("sequence-tabular", "sequence-shared", "lm-answers", "kl-sequence")
    assert names("training", "sequence") == ("kl-sequence",)
    assert names("training", "gradient") == ()
    with pytest.raises(ValueError, match=f"tags must be one of {', '.join(TAGS)}, got 'sequences'"):
        names("training", "sequences")


def test_sequences_have_several_tokens_and_nothing_else_has():
    for name in names():
        lengths = problem(name).policy.lengths
        assert (lengths.max() > 1) == (name in names("sequence") + names("chain"))
        if name in LISTED:
            assert lengths.min() == (3 if name == "sequence-tabular" else 1)


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


def test_a_crowd_of_any_size_can_be_made():
    assert crowd(3).bandit.n_prompts == 3
    assert problem("crowd").bandit.n_prompts == 16


def test_two_arms():
    p = problem("two-arms")
    np.testing.assert_allclose(p.policy.probabilities(p.theta), [[1 / 3, 2 / 3]], rtol=1e-14)
    assert values("two-arms").value == pytest.approx([19 / 30], rel=1e-14)


def test_uniform_meets_assumption_2_exactly():
    assert values("uniform").score_reward_correlation.tolist() == [0.0] * 6
    assert np.abs(values("tabular").score_reward_correlation).max() > 0.1


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


def test_graded_has_three_values():
    assert problem("graded").bandit.values.tolist() == [0.0, 1.0, 2.0]


def test_mixed_difficulty_runs_from_hardly_ever_to_nearly_always():
    np.testing.assert_allclose(values("mixed").value, expit(np.linspace(-4, 4, 8)), rtol=1e-12)


def test_linear_shares_its_features():
    p = problem("linear")
    assert p.policy.dimension < p.bandit.n_prompts * p.bandit.n_responses


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of \d+ names, got 'three-arms'; did you mean 'two-arms'\?"):
        problem("three-arms")
