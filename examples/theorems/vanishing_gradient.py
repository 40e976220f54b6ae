"""Vanishing gradients (arXiv 2310.20703, Theorem 1): a prompt's gradient is at most 6 L gamma STD(r)^(2/3).

The sharp constant of one tabular prompt is 1/sqrt 2. In the broken cases the constant is less than what is
attained.
"""

import numpy as np

import grpo_theory as gt

TEXTS = "||grad V|| <= 6 L gamma STD(r)^(2/3), rewards in [-1, 1]", "for one tabular prompt 1/sqrt 2 does in place of 6 L gamma"
BOUND = gt.Statement("vanishing/theorem 1", "arXiv 2310.20703, Theorem 1", TEXTS[0], "upper bound")
SHARP = gt.Statement("vanishing/constant", "my notes", TEXTS[1], "upper bound", whose="ours")
ONE_TOKEN, TREE = gt.TabularSoftmax(1, 4), gt.TokenTree(1, vocabulary_size=3, horizon=2)


def sides(x, policy=ONE_TOKEN):
    """Return the norm of the gradient, and STD(r)^(2/3) of r = 2 s - 1, for success rates s and parameters in x."""
    success, theta = np.split(np.asarray(x), [policy.n_responses])
    problem = gt.Problem(gt.Bandit.from_law([-1.0, 1.0], np.stack([1.0 - success, success], axis=-1)[None]), policy, theta=theta)
    variance = np.cov(2.0 * success - 1.0, aweights=problem.at().probabilities[0], ddof=0)
    return float(np.linalg.norm(gt.exact.gradient(problem))), float(variance) ** (1.0 / 3.0)


@gt.check(BOUND, SHARP, cases=[{}], broken={"constant": 0.6}, setting="one tabular prompt, worst case found")
def worst(rng, constant=None):
    """Seek the worst success rates and parameters of one token: L = 1, gamma = 1."""
    found = gt.worst_case(sides, [(0.0, 1.0)] * 4 + [(-4.0, 4.0)] * 4, rng=rng, starts=128, climbs=4)
    return {one.id: (found.left, (constant or own) * found.right) for one, own in ((BOUND, 6.0), (SHARP, np.sqrt(0.5)))}


@gt.check(BOUND, cases=[{"draw": number} for number in range(3)], broken={"share": 0.9}, setting="tree, draw {draw}")
def on_trees(rng, share=None):
    """Random trees of two tokens: L = 2, gamma = 1."""
    left, spread = sides([*rng.random(9), *2.0 * rng.normal(size=TREE.dimension)], TREE)
    return left, 12.0 * spread if share is None else share * left
