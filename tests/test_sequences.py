"""Policies over sequences: one token is a bandit, and several tokens are what all sequences, written out, say they are."""

import numpy as np
import pytest
from sequences import (
    assert_close,
    case,
    differentiate,
    gradient,
    hessian,
    list_prefixes,
    list_responses,
    look,
    objective,
    probabilities,
    prompt_gradients,
    reference_logs,
    responses,
    token_logs,
    token_scores,
)

import grpo_theory as gt
from grpo_theory.exact import gradient as exact_gradient
from grpo_theory.exact.derivatives import fill_objectives, hessian_along

# One token: a bandit and its twin.


# Several tokens: the enumeration.

TREES = [
    (features, rewards, penalty)
    for features in ("tabular", "shared")
    for rewards, penalty in (("binary", "plain"), ("binary", "kl"), ("graded", "plain"), ("graded", "kl"))
]
ALL_TREES = pytest.mark.parametrize(("features", "rewards", "penalty"), TREES)


def test_responses_and_prefixes_are_those_of_the_enumeration():
    for sizes in ((2, 3, 1), (3, 3, 1), (3, 3, 0), (3, 3, 2), (3, 2, None), (4, 1, None), (2, 4, 0), (1, 3, None), (1, 3, 0)):
        tree = gt.TokenTree(1, *sizes)
        assert list(tree.responses) == list_responses(*sizes)
        assert list(tree.prefixes) == list_prefixes(*sizes)
    assert {len(response) for response in list_responses(3, 3, 1)} == {1, 2, 3}


@pytest.mark.parametrize("features", ["tabular", "shared"])
def test_the_enumeration_differentiates_itself(features):
    c = case(features, penalty="kl", vocabulary_size=3)
    theta = c.behaviour
    assert_close(probabilities(c, theta).sum(axis=1), np.ones(2))
    for m in range(2):
        assert_close(np.exp([reference_logs(c, m, r).sum() for r in responses(c)]), c.problem.kl.reference[m])
        for response in responses(c):
            by_step = differentiate(lambda t, m=m, r=response: token_logs(c, t, m, r), theta)
            assert_close(token_scores(c, theta, m, response), by_step)
    assert_close(gradient(c, theta), differentiate(lambda t: objective(c, t), theta))


@ALL_TREES
def test_moments_of_sequences(features, rewards, penalty):
    c = case(features, rewards, penalty, vocabulary_size=3)
    found = gt.moments(c.problem, c.theta)
    truths = prompt_gradients(c, c.theta)
    assert_close(found.prompt_gradients, truths)
    assert_close(found.prompt_gradient_power, (truths**2).sum(axis=1))
    assert_close(found.gradient, differentiate(lambda t: objective(c, t), c.theta))
    for m in range(2):
        seen = look(c, m, gt.estimators()["rloo"], c.theta)
        p, z, norms = seen.probabilities, seen.rewards, seen.norms
        power = p @ norms
        norm_deviation = np.sqrt(p @ (norms - power) ** 2)
        covariance = p @ (norms * (z - seen.value))
        assert_close(found.value[m], seen.value)
        assert_close(found.reward_variance[m], seen.standard_deviation**2)
        assert_close(found.optimal_baseline[m], seen.optimal_baseline)
        assert_close(found.score_power[m], power)
        assert_close(found.score_reward_power[m], p @ (norms * z))
        assert_close(found.oracle_power[m], p @ (norms * (z - seen.value) ** 2))
        assert_close(found.score_reward_correlation[m], covariance / (norm_deviation * seen.standard_deviation))


def test_objectives_agree_with_plain_python_point_by_point():
    found = case("shared", "binary", "kl")
    paths, bandit = found.problem.policy.paths, found.problem.bandit
    logits = np.random.default_rng(6).normal(size=(5, found.problem.policy.n_prompts, paths.n_logits))
    logits[3, 0, 0] = np.nan
    tables = np.stack([bandit.mean_reward, np.log(found.problem.kl.reference)]), bandit.prompt_weights.copy()
    tree = paths.edges, paths.lengths, paths.vocabulary_size
    together, plain, alone = np.empty(5), np.empty(5), np.empty(5)
    fill_objectives(logits, *tables, 0.4, *tree, together)
    fill_objectives.function(logits, *tables, 0.4, *tree, plain)
    np.testing.assert_allclose(together, plain, rtol=1e-13)
    for point in range(5):
        fill_objectives(logits[point : point + 1], *tables, 0.4, *tree, alone[point : point + 1])
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(np.isnan(together), np.arange(5) == 3)


@ALL_TREES
def test_gradient_and_hessian_of_the_objective(features, rewards, penalty):
    c = case(features, rewards, penalty, vocabulary_size=3)
    for theta in (c.theta, c.behaviour):
        assert_close(gt.objective(c.problem, theta), objective(c, theta))
        assert_close(exact_gradient(c.problem, theta), differentiate(lambda t: objective(c, t), theta))
        assert_close(gt.hessian(c.problem, theta), hessian(c, theta))
    points, directions = np.stack([c.theta, 0.7 * c.theta]), np.random.default_rng(0).normal(size=(3, len(c.theta)))
    for form, theta in zip(hessian_along(c.problem, points, directions), points, strict=True):
        assert_close(form, directions @ hessian(c, theta) @ directions.T)


# Maximisers and the limit law.
