"""What a user may get wrong in a problem, answered by name, and numbers at the edge of what is allowed."""

from functools import partial

import numpy as np
import pytest

import grpo_theory as gt

LINEAR = gt.gallery.problem("linear")
SIZES = {"batch_size": 2, "group_size": 3}
ROLLOUTS = gt.Rollouts([[1.0, 0.0], [0.0, 1.0]], np.arange(8.0).reshape(2, 2, 2))
BANDIT, TABULAR = gt.Bandit([[0.5, 0.5], [0.1, 0.2]]), gt.TabularSoftmax(2, 2)
LAW, REFERENCE = np.full((1, 1, 3), 1.0 / 3.0), np.full((2, 2), 0.5)
CYCLE, SURE, NETWORK = [[0, 1], [1, 0]], gt.StateRewards([0.0, 1.0]), gt.TwoLayerSoftmax(np.eye(2), 2, 2)
TREE = "edges must make a tree in which every edge leads on to one prefix or ends one response"

REFUSED = [
    (
        partial(gt.gradient_mse, "linear", LINEAR.theta, "rloo", **SIZES),
        "problem must be a Problem, as gt.Problem(bandit, policy)",
    ),
    (partial(gt.gallery.problem, "Linear"), "name must be one of linear, "),
    (partial(gt.PowerLaw, 1, 1.5), "exponent must lie in (0, 1], got 1.5"),
    # Bandits.
    (partial(gt.Bandit, [[-0.25, 0.5]]), "success must lie in [0, 1], got -0.25 at index (0, 0): these are probabilities"),
    (partial(gt.Bandit, [["half"]]), "success must be an array of real numbers with 2 dimensions"),
    (partial(gt.Bandit, [[0.5], [0.5]], [0.5, 0.25]), "prompt_weights must sum to 1 along the last axis, got a sum of 0.75"),
    (partial(gt.Bandit.from_law, [0, 1, 1], LAW), "values must be distinct, got [0.0, 1.0, 1.0]"),
    (partial(BANDIT.at_prompt, 2), "prompt must be below the number of prompts 2, got 2"),
    # Penalties and problems.
    (partial(gt.KL, 0.0, REFERENCE), "strength must be finite and above 0, got 0.0"),
    (partial(gt.KL, 1.0, [[1.0, 0.0]]), "reference must be positive everywhere, got 0"),
    (partial(gt.Problem, [[0.5, 0.5]], TABULAR), "bandit must be a Bandit, got [[0.5, 0.5]]"),
    (partial(gt.Problem, BANDIT, TABULAR, 0.1), "kl must be a KL(strength, reference) or None, got 0.1"),
    (partial(gt.Problem, BANDIT, gt.TokenTree(2, 2, 2)), "policy must have the bandit's (M, K) = (2, 2), got (2, 4)"),
    (partial(gt.Problem, BANDIT, TABULAR, theta=[0, 0, np.inf, 0]), "theta must be finite, got inf at index (2,)"),
    # Policies, and their paths.
    (partial(gt.TokenTree, 1, 2, 13), "vocabulary_size 2 and horizon 13 make more than 4096 responses"),
    (partial(gt.TokenTree, 1, 101, 5000, 0), "horizon must be at most 4096 tokens, got 5000"),
    (partial(gt.TokenTree, 1, 2, 2, 2), "end_token must be a token from 0 to V - 1 = 1, got 2"),
    (partial(gt.TokenTree, 2, 2, 2, features=np.ones((2, 4, 3))), "features must have shape (2, 6) = (M, D), prompts and edges"),
    (partial(gt.TokenTree, 1, 2, 1, None, [[[1.0]] * 2], [[[1.0]]]), "features and hidden must not both be given"),
    (partial(gt.Policy, TABULAR.logit_map, gt.TokenTree(2, 2, 2).paths), "as many logits as the paths have edges, 6, got 2"),
    (partial(gt.Paths, [[0, -1, 2], [1, -1, -1]], 2), "edges must be -1 beyond a response's end and nowhere else"),
    (partial(gt.Paths, [[0]], 2), TREE),  # a token that ends no response
    (partial(gt.Paths, [[0], [0], [1]], 2), TREE),  # one response twice
    (partial(gt.Paths, [[0, 2], [0, 3], [0, -1], [1, -1]], 2), TREE),  # one response is the beginning of another
    (partial(gt.Paths, [[0, 2], [0, 3], [1, 2], [1, 3]], 2), TREE),  # two ways to one prefix
    (partial(gt.Paths, [[0, 2], [0, 5], [1, -1]], 2), TREE),  # one way to two prefixes
    (partial(gt.Paths, [[1], [0]], 2), "edges must be 0 to V - 1 = 1 in this order for responses of one token"),
    # Networks.
    (partial(gt.TwoLayerSoftmax, [[1.0]], 2, 2, scale=1e300), "scale must be at most 1e+50, got 1e+300"),
    (partial(gt.TwoLayerSoftmax, [[1.0]], 2, 2, "gelu"), "'tanh', 'relu', 'identity', got 'gelu'"),
    (partial(gt.Problem, gt.Bandit(np.eye(2)), NETWORK), "theta must be given for TwoLayerSoftmax"),
    # Chains.
    (partial(gt.TokenChain, CYCLE, 4, 2), "end_token must be a token from 0 to V - 1 = 1, got 2"),
    (partial(gt.TokenChain, [[0, 1], [1, 1]], 4), "state 1 cannot be left. If responses end there, write -1"),
    (partial(gt.TokenChain, CYCLE, 10**9), "horizon must be at most 65,536 tokens"),
    (partial(gt.TokenChain, [[0, 1], [1, 2]], 4), "transitions must lead to states from 0 to S - 1 = 1, got 2 after token 1"),
    (partial(gt.TokenChain, CYCLE, 4, starts=[2]), "starts must be states from 0 to S - 1 = 1"),
    (partial(gt.TokenChain, CYCLE, 4, features=np.ones((2, 3, 1))), "features must have shape"),
    (partial(gt.TokenChain, CYCLE, 3, None, np.ones((2, 2, 2)), network=NETWORK), "features and network must not both be given"),
    (partial(gt.TokenChain, [[0], [0]], 3, 0, network=NETWORK), "network must have an input for each"),
    (partial(gt.Problem, BANDIT, gt.TokenChain(CYCLE, 4)), "bandit must be StateRewards"),
    (partial(gt.Problem, SURE, TABULAR), "policy must be a TokenChain"),
    (partial(gt.Problem, SURE, gt.TokenChain(CYCLE, 4), gt.KL(0.1, REFERENCE)), "kl must be None for a TokenChain"),
    (
        partial(gt.Problem, gt.StateRewards([0.2]), gt.TokenChain(CYCLE, 4)),
        "success must have one entry for each of the",
    ),
]
"""Calls, and the words that their messages must hold."""


def test_what_is_wrong_is_said_by_name():
    wrong = []
    for call, words in REFUSED:
        try:
            found = call()
        except (TypeError, ValueError) as error:
            found = str(error)
        wrong += [(words, found)] if words not in str(found) else []
    assert wrong == []


def test_rewards_as_large_as_may_be_have_a_finite_error_that_scales():
    one, large = (gt.Bandit.from_law([0.0, size], [[[0.5, 0.5], [0.2, 0.8]]]) for size in (1.0, 1e60))
    errors = [
        gt.gradient_mse(gt.Problem(bandit, gt.TabularSoftmax(1, 2)), [0.0, 0.3], "rloo", **SIZES) for bandit in (one, large)
    ]
    assert errors[1] == pytest.approx(1e120 * errors[0], rel=1e-12)


def test_probabilities_of_float32_are_divided_by_their_sum():
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.ones(7), size=(5, 4)).astype(np.float32)
    exact = law.astype(np.float64)
    assert np.abs(exact.sum(axis=-1) - 1.0).max() > 1e-9
    bandit = gt.Bandit.from_law(np.arange(7.0), law, np.full(5, 0.2, dtype=np.float32))
    np.testing.assert_allclose(bandit.probabilities.sum(axis=-1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(bandit.probabilities, exact, rtol=1e-6)
    assert gt.KL(0.1, law[:, 0]).reference.sum() == pytest.approx(5.0, rel=1e-15)
    with pytest.raises(ValueError, match="probabilities must sum to 1 along the last axis"):
        gt.Bandit.from_law(np.arange(7.0), exact)
    with pytest.raises(ValueError, match="probabilities must sum to 1 along the last axis"):
        gt.Bandit.from_law([0.0, 1.0], np.array([[[0.5, 0.5001]]], dtype=np.float32))
