"""How often pairs of tokens are drawn in one state, against the recursion that carries scores, and against listed responses."""

from dataclasses import replace
from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.problem.chain_point import pair_counts


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
        law = point.bandit.state_probabilities[state]
        for i, (s, v) in enumerate(taken):
            for other, w in taken[i + 1 :]:
                if other == s:
                    expected[m, :, s, v, w] += chance * law
    np.testing.assert_allclose(counts.pairs, expected, atol=1e-14)
    np.testing.assert_allclose(counts.mass.sum(axis=1), 1.0, atol=1e-14)


def test_sums_are_those_that_are_carried():
    problem, rng = chain_problem(), np.random.default_rng(1)
    sampler = problem.at(problem.theta)
    current = replace(sampler, theta=problem.theta + 0.5 * rng.standard_normal(9))
    gains, tokens = rng.uniform(0.5, 2.0, size=(2, 3, 3)), sampler.state_probabilities
    found = current.sums_of_drawn(sampler, gains)
    carried = current.score_sums(tokens, tokens, gains, current.unit_shares)
    for name in ("mass", "means", "products"):
        np.testing.assert_allclose(getattr(found, name), getattr(carried, name), rtol=1e-12, atol=1e-15)
