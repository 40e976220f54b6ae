"""Problems drawn anew, the logarithm cut short, and what a mean update works around a loop of laws."""

from itertools import pairwise

import numpy as np

import grpo_theory as gt

POLICIES = ("tabular", "linear", "tree")
BINARY, GRADED = (0.0, 1.0), (0.0, 0.3, 1.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def drawn(policy, rng, values=(0.0, 1.0), objective=None):
    """Return a problem of two prompts with a random policy and a random law of the rewards for each response."""
    made = {
        "tabular": lambda: gt.TabularSoftmax(2, 4),
        "linear": lambda: gt.LinearSoftmax(rng.normal(size=(2, 4, 3))),
        "tree": lambda: gt.TokenTree(2, vocabulary_size=3, horizon=2),
    }[policy]()
    law = rng.dirichlet(np.ones(len(values)), size=(made.n_prompts, made.n_responses))
    theta = rng.normal(size=made.dimension)
    return gt.Problem(gt.Bandit.from_law(values, law, [0.3, 0.7]), made, theta=theta, objective=objective)


def climbing(problem, objective):
    """Return the same problem with another objective."""
    return gt.Problem(problem.bandit, problem.policy, theta=problem.theta, objective=objective)


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
    angles = 0.25 * np.pi * (NODES + 1.0)
    shares, lengths = np.sin(angles)[:, None] ** 2, 0.25 * np.pi * WEIGHTS * np.sin(2.0 * angles)
    total, corners = 0.0, np.eye(len(values))
    for start, end in pairwise([*corners, corners[0]]):
        law = start + shares * (end - start)
        total += lengths @ gt.exact.mean_advantages(estimator, values, law, group_size=group_size) @ (end - start)
    return float(total)


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
