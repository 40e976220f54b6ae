"""Policies that have drifted from the one that sampled, as the noise of a step moves them, on tasks of one success rate."""

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.recursion import visits
from simulations.seeds import child_seed

SUCCESS, SEED = 0.55, 36
NEAR = 1.0
"""Nats a response."""
MOST = 50.0
"""The longest drift, in multiples of a response's noise, that is tried."""


def ahead(law: gt.GradientLaw) -> float:
    """Return the efficiency, which is a square, with the sign of the cosine: below 0 where the mean update points back."""
    return float(np.copysign(law.efficiency, law.cosine))


def generator_of_direction(number: int) -> np.random.Generator:
    """Return the generator of a direction with a number, which is the same in every study."""
    return np.random.default_rng(child_seed(np.random.SeedSequence(SEED), number))


def drifted(point: ChainPoint, nats: float, rng: np.random.Generator) -> Array:
    """Return parameters at which a response's divergence from the point's policy is so large, in the direction of a step's noise.

    The direction is normal with the covariance of a response's score, the sum over states of visits times diag(p) - p p'. So
    tokens that are hardly ever drawn hardly move.
    """
    p, weights = point.state_probabilities, point.bandit.prompt_weights
    walk = point.walk(p, point.unit_shares)
    visited = weights @ visits(walk, point.chain.starts).sum(axis=1)
    drawn = np.sqrt(p) * rng.standard_normal(p.shape)
    direction = (np.sqrt(visited)[:, None] * (drawn - p * drawn.sum(axis=1, keepdims=True))).ravel()

    def above(size: float) -> float:
        moved = point.chain.token_log_probabilities(point.theta + size * direction)
        return float(visited @ (p * (point.state_log_probabilities - moved)).sum(axis=1)) - nats

    return point.theta + brentq(above, 0.0, MOST) * direction
