"""Policies over sequences: they are what all sequences, written out, say they are."""

from itertools import product

import numpy as np
import pytest
from enumeration import (
    CASES,
    TREES,
    assert_close,
    case,
    differentiate,
    gradient,
    hessian,
    objective,
    reference_logs,
    responses,
    token_logs,
    token_scores,
    tree_case,
)

import grpo_theory as gt
from grpo_theory.exact import gradient as exact_gradient
from grpo_theory.exact.derivatives import hessian_along


def test_responses_and_prefixes_are_those_of_words_cut_at_their_end():
    """Every word of full length, cut at its first end token; and the beginnings of responses, shortest first."""
    for size, horizon, end in ((2, 3, 1), (3, 3, 1), (3, 3, 0), (3, 3, 2), (3, 2, None), (4, 1, None), (1, 3, None), (1, 3, 0)):
        words = product(range(size), repeat=horizon)
        expected = {word[: word.index(end) + 1] if end in word else word for word in words}
        beginnings = {word[:t] for word in expected for t in range(len(word))}
        tree = gt.TokenTree(1, size, horizon, end)
        assert list(tree.responses) == sorted(expected)
        assert list(tree.prefixes) == sorted(beginnings, key=lambda prefix: (len(prefix), prefix))


@pytest.mark.parametrize("features", ["tabular", "shared"])
def test_the_enumeration_differentiates_itself(features):
    c = tree_case(features, penalty="kl", vocabulary_size=3)
    theta = c.behaviour
    for m in range(2):
        assert_close(np.exp([reference_logs(c, m, r).sum() for r in responses(c)]), c.kl.reference[m])
        for response in responses(c):
            by_step = differentiate(lambda t, m=m, r=response: token_logs(c, t, m, r), theta)
            assert_close(token_scores(c, theta, m, response), by_step)
    assert_close(gradient(c, theta), differentiate(lambda t: objective(c, t), theta))


@pytest.mark.parametrize(("policy", "rewards", "penalty"), CASES + TREES)
def test_gradient_and_hessian_of_the_objective(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    other = c.behaviour if c.behaviour is not None else 0.5 * c.theta
    for theta in (c.theta, other):
        assert_close(gt.objective(c.problem, theta), objective(c, theta))
        assert_close(exact_gradient(c.problem, theta), differentiate(lambda t: objective(c, t), theta))
        assert_close(gt.hessian(c.problem, theta), hessian(c, theta))
    points, directions = np.stack([c.theta, 0.7 * c.theta]), np.random.default_rng(0).normal(size=(3, len(c.theta)))
    for form, theta in zip(hessian_along(c.problem, points, directions), points, strict=True):
        assert_close(form, directions @ hessian(c, theta) @ directions.T)
