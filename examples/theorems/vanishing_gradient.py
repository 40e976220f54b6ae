"""Vanishing gradients (arXiv 2310.20703, Theorem 1): a prompt's gradient is at most 6 L gamma STD(r)^(2/3).

The sharp constant of one tabular prompt is 1/sqrt 2. In the broken cases the constant is less than what
is attained.
"""

import numpy as np

import grpo_theory as gt

BOUND = gt.Statement(
    "vanishing/theorem 1",
    "arXiv 2310.20703, Theorem 1",
    "||grad V|| <= 6 L gamma STD(r)^(2/3), rewards in [-1, 1]",
    "upper bound",
)
SHARP = gt.Statement(
    "vanishing/constant", "my notes", "for one tabular prompt 1/sqrt 2 does in place of 6 L gamma", "upper bound", whose="ours"
)
ARMS = 4


def sides(success, policy, theta):
    """Return the norm of the gradient, and STD(r)^(2/3) of the mean reward r = 2 s - 1 of each response."""
    law = np.stack([1.0 - success, success], axis=-1)[None]
    problem = gt.Problem(gt.Bandit.from_law([-1.0, 1.0], law), policy, theta=theta)
    p, r = problem.at(theta).probabilities[0], 2.0 * success - 1.0
    return float(np.linalg.norm(gt.exact.gradient(problem, theta))), max(p @ r**2 - (p @ r) ** 2, 0.0) ** (1.0 / 3.0)


@gt.check(BOUND, SHARP, cases=[{}], broken={"constant": 0.6}, setting="one tabular prompt, worst case found")
def worst(rng, constant=None):
    """Seek the worst success rates and parameters of one token: L = 1, gamma = 1."""
    box = [(0.0, 1.0)] * ARMS + [(-4.0, 4.0)] * ARMS
    policy = gt.TabularSoftmax(1, ARMS)
    found = gt.worst_case(lambda x: sides(x[:ARMS], policy, x[ARMS:]), box, rng=rng, starts=128, climbs=4)
    bounds = {BOUND.id: constant or 6.0, SHARP.id: constant or np.sqrt(0.5)}
    return {name: (found.left, factor * found.right) for name, factor in bounds.items()}


@gt.check(BOUND, cases=[{"draw": number} for number in range(3)], broken={"share": 0.9}, setting="tree, draw {draw}")
def on_trees(rng, share=None):
    """Random trees of two tokens: L = 2, gamma = 1."""
    policy = gt.TokenTree(1, vocabulary_size=3, horizon=2)
    left, spread = sides(rng.random(9), policy, 2.0 * rng.normal(size=policy.dimension))
    return left, 12.0 * spread if share is None else share * left
