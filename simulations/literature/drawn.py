"""Random problems on which studies of the literature judge: tables, features and trees of tokens."""

import numpy as np

import grpo_theory as gt
from grpo_theory.problem import Policy
from simulations.sequence.divergences import STEP, token_logs

TABLE, FEATURES, TREE, UNEVEN, SHARED = "table", "features", "tree", "uneven tree", "shared tree"
"""Six responses have a logit each, or four features.  Trees of two tokens have logits by prefix, an end token, or features."""


def drawn(kind, rng, success=None):
    """Return one prompt's problem of a kind at random parameters, with random success rates unless one is given for all."""
    policy: Policy
    if kind in (TABLE, FEATURES):
        policy = gt.TabularSoftmax(1, 6) if kind == TABLE else gt.LinearSoftmax(rng.normal(size=(1, 6, 4)))
    else:
        features = rng.normal(size=(1, 12, 5)) if kind == SHARED else None
        policy = gt.TokenTree(1, 3, 2, 0 if kind == UNEVEN else None, features)
    rates = rng.random((1, policy.n_responses)) if success is None else np.full((1, policy.n_responses), success)
    return gt.Problem(gt.Bandit(rates), policy, theta=rng.normal(size=policy.dimension))


def slope(problem, of, direction):
    """Return the derivative along a direction (d,) of a function of the policy's token logs (M, D), at the problem's theta."""
    return of(token_logs(problem, problem.theta + 1j * STEP * direction)).imag / STEP


def by_state(problem, edges):
    """Return values of the edges of one prompt (1, D) by prefix and token, shape (P, V)."""
    return edges.reshape(-1, problem.policy.paths.vocabulary_size)


def score_mean(problem, theta, weights):
    """Return sum_y weights(y) grad log pi(y) of one prompt, shape (d,), for weights (1, K)."""
    return np.asarray(weights[0] @ problem.policy.scores(theta)[0])


def worst(sides, box, rng, climbs=1, compare="difference"):
    """Return both sides of an inequality where a search over a box finds it worst."""
    found = gt.worst_case(sides, box, rng=rng, starts=64, climbs=climbs, compare=compare)
    return found.left, found.right
