"""Vanishing gradients (arXiv 2310.20703): a prompt's gradient is small where its reward varies little.

The worst rewards and parameters are sought.  In the broken cases the gradient would vanish as the reward's variance.
"""

from functools import partial

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature import drawn
from simulations.statements import stated

POLICIES = {"one token": (4, 1), "tables": (2, 2), "shared features": (2, 2), "one head": (2, 3)}
"""The vocabulary and the number of tokens of each kind of policy."""


@check(
    *stated("vanishing/theorem 1", "vanishing/linear", "vanishing/tables"),
    cases=drawn.over(policy=POLICIES),
    broken={"power": 2.0},
    setting="{policy}, worst case found",
)
def worst(policy, rng, power=None):
    """Each bound at its worst: rewards 2 s - 1 of a success rate s for each response."""
    (vocabulary, horizon), gamma, how = POLICIES[policy], 1.0, {}
    prefixes = sum(vocabulary**t for t in range(horizon))
    if policy == "shared features":
        features = rng.normal(size=(prefixes, vocabulary, 3))
        # Gamma is the largest spectral norm of the logits' Jacobian at a prefix.
        how, gamma = {"features": features.reshape(1, -1, 3)}, float(np.linalg.norm(features, ord=2, axis=(1, 2)).max())
    if policy == "one head":
        how = {"hidden": np.ones((1, prefixes, 1))}
    tree = gt.TokenTree(1, vocabulary, horizon, **how)
    box = [(0.0, 1.0)] * tree.n_responses + [(-2.0, 2.0)] * tree.dimension
    found = {
        "vanishing/theorem 1": (6.0 * horizon * gamma, 2.0 / 3.0),
        "vanishing/linear": (gamma * np.sqrt(horizon / 2.0), 1.0),
    }
    if policy in ("one token", "tables"):
        found["vanishing/tables"] = np.sqrt(0.5), 1.0

    def sides(x, constant, exponent):
        success, theta = x[: tree.n_responses], x[tree.n_responses :]
        problem = gt.Problem(gt.Bandit(success[None]), tree, theta=theta)
        p, r = problem.at(theta).probabilities[0], 2.0 * success - 1.0
        deviation = np.sqrt(max(p @ (r - p @ r) ** 2, 0.0))
        return 2.0 * float(np.linalg.norm(gt.exact.gradient(problem, theta))), constant * deviation**exponent

    compare = "difference" if power else "ratio"
    return {
        name: drawn.worst(partial(sides, constant=constant, exponent=power or exponent), box, rng, compare=compare, starts=32)
        for name, (constant, exponent) in found.items()
    }
