"""Maximisers of the objective, to machine precision."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from grpo_theory.exact.moments import moments
from grpo_theory.exact.objective import hessian, objective
from grpo_theory.exact.outcomes import check_match
from grpo_theory.kl import KL, check_penalty
from grpo_theory.policy import Policy, TabularSoftmax
from grpo_theory.problem import Bandit

Array = NDArray[np.float64]

GRADIENT_TOLERANCE = 1e-9
RANK_TOLERANCE = 1e-9


def find_optimum(bandit: Bandit, policy: Policy, theta0: ArrayLike, kl: KL | None = None) -> Array:
    """Find a maximiser from a start: a trust region first, Newton's method to the end.

    For a tabular policy with a KL penalty the maximiser is known, pi* proportional to reference * exp(E[Z|k] / strength);
    its logits are returned with mean zero over the responses of each prompt.

    Raises
    ------
    ValueError
        If no interior maximiser is found: without a penalty there may be none.
    """
    check_match(bandit, policy)
    check_penalty(kl)
    start = policy.check_theta(theta0)
    if type(policy) is TabularSoftmax and kl is not None:
        reference = kl.check_reference((bandit.n_prompts, bandit.n_responses))
        logits = np.log(reference) + bandit.mean_reward / kl.strength
        return (logits - logits.mean(axis=1, keepdims=True)).reshape(-1)

    def loss(theta: Array) -> float:
        return -float(objective(bandit, policy, theta, kl))

    def slope(theta: Array) -> Array:
        return -moments(bandit, policy, theta, kl).gradient

    def curvature(theta: Array) -> Array:
        return -hessian(bandit, policy, theta, kl)

    theta = np.asarray(minimize(loss, start, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-10}).x)
    for _ in range(20):
        gradient = moments(bandit, policy, theta, kl).gradient
        step = np.linalg.pinv(hessian(bandit, policy, theta, kl), rcond=1e-12, hermitian=True) @ gradient
        theta = theta - step
        if np.linalg.norm(step) <= 1e-14 * max(1.0, float(np.linalg.norm(theta))):
            break
    check_optimum(bandit, policy, theta, kl)
    return theta


def check_optimum(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> tuple[Array, Array]:
    """Raise unless theta is an interior maximiser; returns the curvatures and identifiable directions there.

    Returns
    -------
    curvatures : ndarray, shape (r,)
        The positive eigenvalues of minus the Hessian.
    directions : ndarray, shape (d, r)
        Their eigenvectors Q; along all others the objective is flat, to second order.

    Raises
    ------
    ValueError
        If the point is not stationary, not a maximiser, or not interior: the objective then is flat in a direction only because
        the policy has become deterministic there, and the maximum lies at infinity.
    """
    theta = policy.check_theta(theta)
    gradient = float(np.linalg.norm(moments(bandit, policy, theta, kl).gradient))
    eigenvalues, eigenvectors = np.linalg.eigh(-hessian(bandit, policy, theta, kl))
    scale = float(np.abs(eigenvalues).max())
    if scale <= 1e-12 and gradient <= GRADIENT_TOLERANCE:
        raise ValueError("optimum must have a direction of negative curvature, and the objective is flat in all")
    if gradient > GRADIENT_TOLERANCE * scale:
        raise ValueError(
            f"optimum must be a stationary point, got a gradient of norm {gradient:.3g} at a curvature of {scale:.3g}"
        )
    if eigenvalues[0] < -RANK_TOLERANCE * scale:
        raise ValueError(f"optimum must be a maximiser, got a direction of positive curvature {-eigenvalues[0]:.3g}")
    identifiable = eigenvalues > RANK_TOLERANCE * scale
    _check_interior(bandit, policy, policy.probabilities(theta), eigenvectors[:, ~identifiable])
    return eigenvalues[identifiable], eigenvectors[:, identifiable]


def _check_interior(bandit: Bandit, policy: Policy, pi: Array, flat: Array) -> None:
    """Raise if a flat direction, one of the columns of (d, s), moves the uniform policy and no longer moves this one."""
    uniform = np.full_like(pi, 1.0 / policy.n_responses)
    here, there = (flat.T @ _fisher(bandit, policy, p) @ flat for p in (pi, uniform))
    least = RANK_TOLERANCE * float(np.linalg.norm(_fisher(bandit, policy, uniform), 2))
    ranks = [int((np.linalg.eigvalsh(form) > least).sum()) for form in (here, there)]
    if ranks[0] < ranks[1]:
        raise ValueError(
            f"optimum must be interior, and the policy is deterministic along {ranks[1] - ranks[0]} of its directions: "
            f"the smallest probability is {pi[bandit.prompt_weights > 0.0].min():.3g}"
        )


def _fisher(bandit: Bandit, policy: Policy, pi: Array) -> Array:
    """Return E[W W'], shape (d, d), for the probabilities (M, K) of a policy."""
    forms = -pi[:, :, None] * pi[:, None, :]
    diagonal = np.arange(policy.n_responses)
    forms[:, diagonal, diagonal] += pi
    return policy.congruence(bandit.prompt_weights[:, None, None] * forms)
