"""Small problems whose responses have one, two or three tokens."""

import numpy as np
from enumeration import Case, Dense, case, policy_of

import grpo_theory as gt

__all__ = ["TREES", "Dense", "token_case"]
TREES = ("tree", "linear tree", "head tree")


def token_case(policy="tree", penalty="plain") -> Case:
    """Make a small problem: a bandit's (`enumeration.case`, graded), or one whose responses have one, two or three tokens.

    Features are of edges, (M, D, d).  A reward is certain, and the last outcome of a prompt cannot happen.
    """
    if policy not in TREES:
        return case(policy, "graded", penalty)
    rng, tree = np.random.default_rng([TREES.index(policy), penalty == "kl"]), gt.TokenTree(2, 2, 3, end_token=0)
    made, features = (tree, np.eye(12).reshape(2, 6, 12)) if policy == "tree" else policy_of(policy.split()[0], tree, rng)
    law = rng.dirichlet(np.ones(3), size=(2, 4))
    law[0, 1], law[1, 3] = [0.0, 1.0, 0.0], [0.4, 0.6, 0.0]
    bandit = gt.Bandit.from_law([-0.5, 1.0, 2.0], law, [0.7, 0.3])
    kl = gt.KL(0.3, rng.dirichlet(np.full(4, 3.0), size=2)) if penalty == "kl" else None
    return Case(gt.Problem(bandit, made, kl, rng.normal(size=made.dimension)), features)
