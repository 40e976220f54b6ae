"""Norms of scores and of the gradient, and what bounds them: both sides, of an old policy, the current one, and the rewards."""

from collections.abc import Callable

import numpy as np

from grpo_theory.arrays import Array
from simulations.sequence.tokens import Tokens

WIDTH = 0.2
"""The clip's upper width e, as practised."""
Sides = Callable[[Tokens, Tokens, Array], tuple[float, float]]


def power(tokens: Tokens, weights: Array) -> float:
    """Return sum_k weights_k ||W_k||^2."""
    return float(weights @ (tokens.response_scores**2).sum(axis=1))


def martingale(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T3: E||grad log P(s_T)||^2, and E sum_t ||grad log P(s_t | s_{t-1})||^2."""
    by_token = (now.of_responses(now.scores) ** 2).sum(axis=(1, 2))
    return power(now, now.response_probabilities), float(now.response_probabilities @ by_token)


def martingale_astray(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """The same, with responses drawn from another policy than the one whose scores they are."""
    by_token = (now.of_responses(now.scores) ** 2).sum(axis=(1, 2))
    return power(now, old.response_probabilities), float(old.response_probabilities @ by_token)


def capped(old: Tokens, now: Tokens, rewards: Array, cap: float = 1.0 + WIDTH) -> tuple[float, float]:
    """T4: E_0||min(rho, 1+e) W_k||^2, and (1+e) E_k||W_k||^2."""
    p, q = old.response_probabilities, now.response_probabilities
    return power(now, p * np.minimum(q / p, cap) ** 2), (1.0 + WIDTH) * power(now, q)


def uncapped(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """The same without the cap."""
    return capped(old, now, rewards, np.inf)


def _gradient(now: Tokens, rewards: Array) -> float:
    return float(np.linalg.norm((now.response_probabilities * rewards) @ now.response_scores))


def curvature(now: Tokens, rewards: Array) -> float:
    """Return the largest |eigenvalue| of the Hessian of J = E r: E r (W W' + the Hessian of log P)."""
    scores, weights = now.response_scores, now.response_probabilities * rewards
    hessian = np.einsum("k,ki,kj->ij", weights, scores, scores)
    hessian -= np.einsum("k,kij->ij", weights, now.of_responses(now.covariances).sum(axis=1))
    return float(np.abs(np.linalg.eigvalsh(hessian)).max())


def _constants(now: Tokens, rewards: Array) -> tuple[float, float, float]:
    """Return R, L T and log V."""
    paths = now.paths
    return float(np.abs(rewards).max()), now.lipschitz * paths.horizon, float(np.log(paths.vocabulary_size))


def gradient(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T5: ||grad J|| against R sqrt(2 L T log V)."""
    r, lt, log_v = _constants(now, rewards)
    return _gradient(now, rewards), r * np.sqrt(2.0 * lt * log_v)


def smoothness(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T5: ||Hess J|| against T R L (2 log V + 1)."""
    r, lt, log_v = _constants(now, rewards)
    return curvature(now, rewards), r * lt * (2.0 * log_v + 1.0)


def gradient_sharpening(vocabulary_size: int) -> float:
    """Return T5's printed bound of the gradient over the one derived, R sqrt(L T)."""
    return float(np.sqrt(2.0 * np.log(vocabulary_size)))


def smoothness_sharpening(vocabulary_size: int) -> float:
    """Return T5's printed bound of the Hessian over the one derived, 2 T R L."""
    return float(np.log(vocabulary_size)) + 0.5
