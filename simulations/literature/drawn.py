<<<<<<< HEAD
"""Random problems on which studies of the literature judge: tables, features and trees of tokens."""
=======
"""Worlds drawn anew for every case: a policy, its parameters, and the rewards of each response."""
>>>>>>> f3168f2e (Seven papers on estimators become studies, exact and in seconds)

import numpy as np

import grpo_theory as gt
<<<<<<< HEAD
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
=======

POLICIES = ("tabular", "linear", "tree")
BINARY, GRADED = (0.0, 1.0), (0.0, 0.3, 1.0)


def policy_of(kind, rng, prompts):
    """Return a policy with four responses a prompt; those of the tree have one to three tokens, and prompts share parameters."""
    if kind == "tabular":
        return gt.TabularSoftmax(prompts, 4)
    if kind == "linear":
        return gt.LinearSoftmax(rng.normal(size=(prompts, 4, 5)))
    return gt.TokenTree(prompts, vocabulary_size=2, horizon=3, end_token=0, features=rng.normal(size=(prompts, 6, 5)))


def world(kind, rng, values=BINARY, prompts=2):
    """Return a problem whose rewards have random laws, at random parameters."""
    policy = policy_of(kind, rng, prompts)
    law = rng.dirichlet(np.ones(len(values)), size=(prompts, 4))
    bandit = gt.Bandit.from_law(values, law, rng.dirichlet(5.0 * np.ones(prompts)))
    return gt.Problem(bandit, policy, theta=0.7 * rng.normal(size=policy.dimension))


def direction(vector):
    """Return a vector of length 1."""
    return vector / np.linalg.norm(vector)


def scores_of(problem):
    """Return grad log pi of each response, shape (M, K, d)."""
    adjoint, found = problem.policy.tangent(problem.theta).adjoint, problem.at(problem.theta).logit_gradients
    prompts, responses, _ = found.shape
    lone = np.eye(prompts)[:, None, :, None] * found[:, :, None, :]
    return np.array([[adjoint(lone[m, k]) for k in range(responses)] for m in range(prompts)])
>>>>>>> f3168f2e (Seven papers on estimators become studies, exact and in seconds)
