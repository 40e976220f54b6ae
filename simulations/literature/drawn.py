"""Random problems on which studies of the literature judge, their cases, and what several studies ask of a problem."""

from itertools import pairwise, product

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope

TABLE, FEATURES, TREE, UNEVEN, SHARED = "table", "features", "tree", "uneven tree", "shared tree"
"""Six responses have a logit each, or four features.  Trees of two tokens have logits by prefix, an end token, or features."""
KINDS = (TABLE, FEATURES, TREE, UNEVEN, SHARED)
POLICIES = ("tabular", "linear", TREE)
"""Four responses a prompt in problems of several prompts, apart from trees."""
BINARY, GRADED = (0.0, 1.0), (0.0, 0.3, 1.0)
DIVIDED = gt.estimators()["grpo"].with_parameters(epsilon=0.0)
"""GRPO without the small number beside the deviation."""


def over(**values):
    """Return the cases of a check: all combinations of the values, by name."""
    return [dict(zip(values, case, strict=True)) for case in product(*values.values())]


def policy_of(kind, rng, prompts=1, width=None):
    """Return a policy; with a width, a tree's responses have one to three tokens, and prompts share parameters."""
    if kind in (TABLE, "tabular"):
        return gt.TabularSoftmax(prompts, 6 if kind == TABLE else 4)
    if kind in (FEATURES, "linear"):
        return gt.LinearSoftmax(rng.normal(size=(prompts, 6, 4) if kind == FEATURES else (prompts, 4, width or 3)))
    if width:
        return gt.TokenTree(prompts, 2, 3, 0, rng.normal(size=(prompts, 6, width)))
    features = rng.normal(size=(prompts, 12, 5)) if kind == SHARED else None
    return gt.TokenTree(prompts, 3, 2, 0 if kind == UNEVEN else None, features)


def drawn(kind, rng, success=None):
    """Return one prompt's problem of a kind at random parameters, with random success rates unless one is given for all."""
    policy = policy_of(kind, rng)
    rates = rng.random((1, policy.n_responses)) if success is None else np.full((1, policy.n_responses), success)
    return gt.Problem(gt.Bandit(rates), policy, theta=rng.normal(size=policy.dimension))


def world(kind, rng, values=BINARY, prompts=2, objective=None, width=5):
    """Return a problem of several prompts whose rewards have random laws, at random parameters; without a width, two prompts."""
    policy = policy_of(kind, rng, prompts, width)
    law = rng.dirichlet(np.ones(len(values)), size=(prompts, policy.n_responses))
    bandit = gt.Bandit.from_law(values, law, rng.dirichlet(5.0 * np.ones(prompts)) if width else [0.3, 0.7])
    return gt.Problem(bandit, policy, theta=(0.7 if width else 1.0) * rng.normal(size=policy.dimension), objective=objective)


def expected_update(problem, kernel, group_size, behaviour=None):
    """Return the mean update at the problem's theta, by default on policy."""
    return gt.gradient_mean(problem, problem.theta, kernel, batch_size=1, group_size=group_size, behaviour=behaviour)


def climbing(problem, objective):
    """Return the gradient of another objective at the problem's theta."""
    return gt.exact.gradient(gt.Problem(problem.bandit, problem.policy, theta=problem.theta, objective=objective))


def truncated(order):
    """Return the objective -sum_{k <= order} (1 - p)^k/k."""
    powers = range(1, order + 1)
    return gt.Objective.of_success(
        "truncated logarithm",
        lambda p: -sum((1.0 - p) ** k / k for k in powers),
        lambda p: sum((1.0 - p) ** (k - 1) for k in powers),
    )


def worked(estimator, values, group_size):
    """Return the integral of sum_l a_l dq_l, a the mean advantages, from the law sure of each reward to the next and back.

    Of what climbs an objective it is 0.  Along an edge t = sin^2, which takes away the poles that groups without end have.
    """
    nodes, weights = np.polynomial.legendre.leggauss(80)
    angles = 0.25 * np.pi * (nodes + 1.0)
    shares, lengths = np.sin(angles)[:, None] ** 2, 0.25 * np.pi * weights * np.sin(2.0 * angles)
    total, corners = 0.0, np.eye(len(values))
    for start, end in pairwise([*corners, corners[0]]):
        law = start + shares * (end - start)
        total += lengths @ gt.exact.mean_advantages(estimator, values, law, group_size=group_size) @ (end - start)
    return float(total)


def orders(left):
    """Return the powers of a small distance as which falls what is left of it, one or several numbers."""
    distances = np.array([1e-2, 3e-3, 1e-3])
    columns = np.transpose([np.atleast_1d(left(distance)) for distance in distances])
    return [log_log_slope(distances, column)[0] for column in columns]


def score_mean(problem, theta, weights):
    """Return sum_y weights(y) grad log pi(y) of one prompt, shape (d,), for weights (1, K)."""
    return np.asarray(weights[0] @ problem.policy.scores(theta)[0])


def worst(sides, box, rng, climbs=1, compare="difference", starts=64):
    """Return both sides of an inequality where a search over a box finds it worst."""
    found = gt.worst_case(sides, box, rng=rng, starts=starts, climbs=climbs, compare=compare)
    return found.left, found.right
