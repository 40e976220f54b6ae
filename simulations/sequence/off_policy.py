"""Exact mean updates at many pairs of a current policy and the one that sampled, side by side."""

from copy import copy
from functools import cached_property

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.registry import NEGATIVE, POSITIVE, gains_of
from grpo_theory.validation import Array


class Pairs:
    """N pairs of policies of one problem with rewards 0 and 1: theta (N, d) learns from responses that behaviour (N, d) drew.

    Let V be the behaviour's success at the prompt. With leave-one-out advantages a right response has an advantage of at least 0,
    on average 1 - V. A wrong one has an advantage of at most 0, on average -V. So the sign that a clip sees is known from the
    reward, and means are sums over responses, at any group size.
    """

    def __init__(self, problem: gt.Problem, theta: Array, behaviour: Array) -> None:
        logits, self.paths = problem.policy.logit_map.logits, problem.policy.paths
        self.logits, self.features = logits, problem.policy.jacobian()
        self.prompt_weights, self.success = problem.bandit.prompt_weights, problem.bandit.mean_reward
        self.now, self.old = (self.paths.log_probabilities(logits(vectors)) for vectors in (theta, behaviour))

    def moved(self, theta: Array) -> "Pairs":
        """Return the pairs of the same behaviour with other current policies, theta (N, d); its tables are shared."""
        pairs = copy(self)
        pairs.now = self.paths.log_probabilities(self.logits(theta))
        return pairs

    @cached_property
    def reached(self) -> Array:
        """Probability of each response under the behaviour, shape (N, M, K)."""
        return np.exp(self.paths.along(self.old))

    def gradients(self) -> Array:
        """Return grad J at the current policies, (N, d)."""
        reached = np.exp(self.paths.along(self.now))
        return self._mean((reached * self.success)[..., None] * np.ones(self.paths.horizon))

    def mean_updates(self, gains: Array, sign_is_lost: bool = False) -> Array:
        """Return the mean updates of an estimator with leave-one-out advantages, (N, d), by its gains.

        If the sign is lost, something broken: advantages are taken for their absolute values.
        """
        sign = 1.0 if sign_is_lost else -1.0
        value = (self.reached * self.success).sum(axis=-1, keepdims=True)
        right = (self.reached * self.success * (1.0 - value))[..., None] * gains[POSITIVE]
        wrong = (self.reached * (1.0 - self.success) * value)[..., None] * gains[POSITIVE if sign_is_lost else NEGATIVE]
        return self._mean(right + sign * wrong)

    def updates(self, estimator: gt.Estimator, right: Array, wrong: Array) -> Array:
        """Return the sums of advantages times scores, (N, d), of responses that were drawn.

        Their advantages, summed by prompt and response, are given for right responses and for wrong ones, shape (N, M, K) each.
        """
        gains = self.gains(estimator)
        return self._add_up(right[..., None] * gains[POSITIVE] + wrong[..., None] * gains[NEGATIVE])

    def clipped(self, gains: Array) -> Array:
        """Return the expected share of tokens that an estimator's clip drops, (N,), by its gains."""
        dropped = (gains == 0.0) & self.paths.taken
        right, wrong = self.reached * self.success, self.reached * (1.0 - self.success)
        by_token = right[..., None] * dropped[POSITIVE] + wrong[..., None] * dropped[NEGATIVE]
        return self._by_token(by_token)

    def log_ratios(self) -> Array:
        """Return the expected absolute log ratio of a token, (N,)."""
        return self._by_token(self.reached[..., None] * np.abs(self.paths.gather(self.now - self.old)))

    def gains(self, estimator: gt.Estimator) -> Array:
        """Return what the tokens' scores are multiplied by, for right responses and for wrong ones, shape (2, N, M, K, T)."""
        log_ratios = (self.now - self.old).reshape(-1, self.paths.n_logits).T
        gains = gains_of(estimator, self.paths, log_ratios)
        return np.moveaxis(gains, (1, 3), (0, 1)).reshape(2, *self.old.shape[:2], *self.paths.edges.shape)

    def _mean(self, weights: Array) -> Array:
        """Return the mean over prompts of the sums of the tokens' scores, shape (N, d)."""
        return self._add_up(self.prompt_weights[:, None, None] * weights)

    def _add_up(self, weights: Array) -> Array:
        """Return the sum of the tokens' scores under the current policy with weights (N, M, K, T), shape (N, d)."""
        logit_gradients = self.paths.centre(self.paths.add_up(weights), np.exp(self.now))
        return np.tensordot(logit_gradients, self.features, axes=2)

    def _by_token(self, values: Array) -> Array:
        """Return the mean over prompts of values of tokens (N, M, K, T) that are weighed by their response's probability."""
        lengths = (self.reached * self.paths.lengths).sum(axis=-1) @ self.prompt_weights
        return values.sum(axis=(2, 3)) @ self.prompt_weights / lengths


def cosines(ones: Array, others: Array) -> Array:
    """Return the cosines of the angles between vectors (N, d), shape (N,)."""
    lengths = np.linalg.norm(ones, axis=1) * np.linalg.norm(others, axis=1)
    return (ones * others).sum(axis=1) / lengths
