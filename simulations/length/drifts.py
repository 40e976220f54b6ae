"""Policies that have drifted from the one that sampled, as the noise of a step moves them, on tasks of one success rate."""

import numpy as np
from scipy.optimize import brentq

from grpo_theory.problem.chain_point import visits
from simulations.seeds import child_seed

SUCCESS, SEED = 0.55, 36
NEAR = 1.0
"""Nats a response."""
MOST = 50.0
"""The longest drift, in multiples of a response's noise, that is tried."""


def ahead(law):
    """Return the efficiency, which is a square, with the sign of the cosine: below 0 where the mean update points back."""
    return np.copysign(law.efficiency, law.cosine)


def drifted(point, nats, number):
    """Return parameters at which a response's divergence from the point's policy is so large, in the direction of a step's noise.

    A direction with a number is the same in every study.

    The direction is normal with the covariance of a response's score, the sum over states of visits times diag(p) - p p'. So
    tokens that are hardly ever drawn hardly move.
    """
    p, weights = point.state_probabilities, point.bandit.prompt_weights
    walk = point.walk(p, point.unit_shares)
    visited = weights @ visits(walk, point.policy.starts).sum(axis=1)
    drawn = np.sqrt(p) * np.random.default_rng(child_seed(np.random.SeedSequence(SEED), number)).standard_normal(p.shape)
    direction = (np.sqrt(visited)[:, None] * (drawn - p * drawn.sum(axis=1, keepdims=True))).ravel()

    def above(size):
        moved = point.policy.token_log_probabilities(point.theta + size * direction)
        return visited @ (p * (point.state_log_probabilities - moved)).sum(axis=1) - nats

    return point.theta + brentq(above, 0.0, MOST) * direction
