"""An old and a current policy on a tree, and the gradients that an update off policy may be the estimate of."""

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from simulations.sequence.tokens import Tokens

LOW = HIGH = 0.2
"""The widths of the clips."""


class Pair:
    """The old and the current policy, and the gradients that the update may be the estimate of."""

    def __init__(self, problem: gt.Problem, theta: Array) -> None:
        features = problem.policy.jacobian()[0]
        paths = problem.policy.paths
        self.old, self.now = (Tokens(paths, features @ vector, features) for vector in (problem.theta, theta))
        self.rewards = problem.bandit.mean_reward[0]

    def gradient(self, tokens: Tokens) -> Array:
        """Return grad J at a policy, (d,)."""
        return (tokens.response_probabilities * self.rewards) @ tokens.response_scores

    def surrogate_gradient(self) -> Array:
        """Return the gradient, at the current policy, of J with old prefixes, the current token, and old continuations, (d,).

        A sum over edges: reach of the prefix, times the current token's probability and score, times the old value beyond.
        """
        p = self.old.response_probabilities
        incidence = self.old.paths.incidence
        through = p @ incidence
        beyond = (p * self.rewards) @ incidence / through
        reach = through / self.old.probabilities
        return (reach * self.now.probabilities * beyond) @ self.now.scores

    def kept_gradient(self) -> Array:
        """Return E_k[1_D grad log P_k (r - mu_0)], (d,)."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        kept = q / p <= 1.0 + HIGH
        return (q * kept * (self.rewards - p @ self.rewards)) @ self.now.response_scores

    def clipped(self) -> float:
        """Return the expected share of tokens that the clip by sign drops; of rewards 0 and 1 it is by them."""
        ratios, r = self.old.of_responses(self.now.probabilities / self.old.probabilities), self.rewards[:, None]
        dropped = self.old.paths.taken * (r * (ratios > 1.0 + HIGH) + (1.0 - r) * (ratios < 1.0 - LOW))
        p = self.old.response_probabilities
        return float(p @ dropped.sum(axis=1) / (p @ self.old.paths.lengths))

    def divergence(self) -> float:
        """Return KL(P_0 || P_k) of the responses over the horizon: nats a token."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        return float(p @ np.log(p / q)) / self.old.paths.horizon
