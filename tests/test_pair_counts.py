"""How often pairs of tokens are drawn in one state, against the recursion that carries scores, and against listed responses."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import score_moments
from grpo_theory.problem.chain_point import ChainPoint
from grpo_theory.problem.pair_counts import pair_counts


def chain_problem():
    """Three states, of which the last is final; two starts, an end token, responses of one to five tokens."""
    chain = gt.TokenChain([[1, 0, 2], [0, 1, 2], [-1, -1, -1]], horizon=5, end_token=1, starts=[0, 1])
    theta = np.random.default_rng(0).standard_normal(9)
    return gt.Problem(gt.StateRewards([0.2, 0.9, 0.5]), chain, theta=theta)


def test_pairs_are_those_of_listed_responses():
    problem = chain_problem()
    point, chain = problem.at(problem.theta), problem.policy
    counts = pair_counts(point.walk(point.state_probabilities, point.unit_shares), chain.starts)
    expected = np.zeros(counts.pairs.shape)
    for (m, start), drawn in product(enumerate(chain.starts), product(range(3), repeat=5)):
        state, chance, taken = int(start), 1.0, []
        for token in drawn:
            chance *= point.state_probabilities[state, token]
            taken.append((state, token))
            ended, state = chain.ends[state, token], int(chain.transitions[state, token])
            if ended:
                break
        # A response that ends early is met once for each way in which the tokens after its end are written.
        chance /= 3.0 ** (5 - len(taken))
        law = point.state_rewards.state_probabilities[state]
        for i, (s, v) in enumerate(taken):
            for other, w in taken[i + 1 :]:
                if other == s:
                    expected[m, :, s, v, w] += chance * law
    np.testing.assert_allclose(counts.pairs, expected, atol=1e-14)
    np.testing.assert_allclose(counts.mass.sum(axis=1), 1.0, atol=1e-14)


@pytest.mark.parametrize("n_features", [1, 2])
def test_sums_are_those_that_are_carried(n_features):
    problem, rng = chain_problem(), np.random.default_rng(1)
    sampler = problem.at(problem.theta)
    current = replace(sampler, theta=problem.theta + 0.5 * rng.standard_normal(9))
    gains, tokens = rng.uniform(0.5, 2.0, size=(n_features, 3, 3)), sampler.state_probabilities
    found = current.sums_of_drawn(sampler, gains)
    carried = current.score_sums(tokens, tokens, gains, current.unit_shares)
    for name in ("mass", "means", "products"):
        np.testing.assert_allclose(getattr(found, name), getattr(carried, name), rtol=1e-12, atol=1e-15)


def test_shares_that_are_alike_scale_the_sums():
    """Of responses of one length, as where tokens are averaged; the recursion with the shares in it says the same."""
    chain = gt.TokenChain([[0, 1], [1, 0]], horizon=6)
    problem = gt.Problem(gt.StateRewards([0.1, 0.8]), chain, theta=[0.0, -1.0, 0.3, 0.2])
    point = problem.at(problem.theta)
    tokens, gains, shares = point.state_probabilities, np.ones((1, 2, 2)), np.full(7, 1.0 / 6.0)
    found, carried = point.score_sums(tokens, tokens, gains, shares), point.carried(point.walk(tokens, shares**2), gains)
    np.testing.assert_allclose(found.products, carried.product[chain.starts], rtol=1e-12)
    np.testing.assert_allclose(found.mass.sum(axis=1), 1.0 / 6.0, rtol=1e-12)


def test_where_pairs_are_too_many_the_law_is_carried_and_the_same(monkeypatch):
    problem, asked = chain_problem(), []
    drifted = problem.theta + 0.2 * np.random.default_rng(2).standard_normal(9)
    counting = ChainPoint.sums_of_drawn
    monkeypatch.setattr(ChainPoint, "sums_of_drawn", lambda *arguments: asked.append(1) or counting(*arguments))

    def error():
        return gt.gradient_law(problem, drifted, "grpo", batch_size=4, group_size=4, behaviour=problem.theta).mse

    counted, times = error(), len(asked)
    monkeypatch.setattr(score_moments, "MOST_PAIRS", 0)
    assert error() == pytest.approx(counted, rel=1e-12)
    assert len(asked) == times > 0


def test_counts_know_how_many_they_are():
    problem = chain_problem()
    point = problem.at(problem.theta)
    assert point.pair_counts.pairs.size == point.n_pairs
