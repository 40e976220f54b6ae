"""The objective and its second derivative, exactly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, xlogy

from grpo_theory.exact.outcomes import check_match
from grpo_theory.kl import KL, check_penalty
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit

Array = NDArray[np.float64]


def objective(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> Array:
    """Return J(theta) = E[Z] - strength * E KL(pi || reference), shape (...,), for theta (..., d); NaN where theta is."""
    check_match(bandit, policy)
    check_penalty(kl)
    pi = np.exp(log_softmax(_logits(policy, "theta", theta), axis=-1))
    value = np.einsum("...mk,mk,m->...", pi, bandit.mean_reward, bandit.prompt_weights)
    if kl is None:
        return value
    divergence = (xlogy(pi, pi) - pi * np.log(kl.check_reference(pi.shape[-2:]))).sum(axis=-1)
    return value - kl.strength * (divergence @ bandit.prompt_weights)


def hessian(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> Array:
    """Return the Hessian of the objective, shape (d, d).

    Theorem (docs/derivations.md, section 5).  With q_k = E[Z|k] - strength log(pi_k / reference_k), V = sum pi_k q_k and
    c_k = pi_k (q_k - V), the Hessian in the logits of one prompt is

        diag(c) - c pi' - pi c' - strength (diag(pi) - pi pi'),

    and that in theta is its congruence with Phi, averaged over prompts.
    """
    check_match(bandit, policy)
    check_penalty(kl)
    pi = policy.probabilities(theta)
    reward = bandit.mean_reward - (0.0 if kl is None else kl.penalty(pi))
    strength = 0.0 if kl is None else kl.strength
    covectors = pi * (reward - np.einsum("mk,mk->m", pi, reward)[:, None])
    outer = covectors[:, :, None] * pi[:, None, :]
    forms = -outer - np.swapaxes(outer, 1, 2) + strength * pi[:, :, None] * pi[:, None, :]
    diagonal = np.arange(policy.n_responses)
    forms[:, diagonal, diagonal] += covectors - strength * pi
    return policy.congruence(bandit.prompt_weights[:, None, None] * forms)


def gradient(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> Array:
    """Return grad J(theta), shape (d,), for theta of shape (d,)."""
    return policy.adjoint(_covectors(bandit, policy, policy.check_theta(theta), kl))


def directional_derivatives(
    bandit: Bandit, policy: Policy, theta: ArrayLike, directions: ArrayLike, kl: KL | None = None
) -> Array:
    """Return grad J(theta) . v, shape (..., J), for theta of shape (..., d) and directions v of shape (J, d)."""
    logits = _logits(policy, "directions", directions)
    return np.einsum("...mk,jmk->...j", _covectors(bandit, policy, theta, kl), logits)


def _logits(policy: Policy, name: str, vectors: ArrayLike) -> Array:
    """Return Phi v, shape (..., M, K), for vectors v of shape (..., d)."""
    vectors = np.asarray(vectors, dtype=np.float64)
    if vectors.ndim == 0 or vectors.shape[-1] != policy.dimension:
        raise ValueError(f"{name} must have shape (..., d) with d = {policy.dimension}, got {vectors.shape}")
    return policy.logits(vectors)


def _covectors(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None) -> Array:
    """Return the objective's gradient in the logits, shape (..., M, K)."""
    check_match(bandit, policy)
    check_penalty(kl)
    log_pi = log_softmax(_logits(policy, "theta", theta), axis=-1)
    reward = bandit.mean_reward
    if kl is not None:
        reward = reward - kl.strength * (log_pi - np.log(kl.check_reference(log_pi.shape[-2:])))
    pi = np.exp(log_pi)
    return pi * (reward - (pi * reward).sum(axis=-1, keepdims=True)) * bandit.prompt_weights[:, None]
