"""Maximisers of the objective, to machine precision."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from grpo_theory.arrays import Array
from grpo_theory.exact.surface import fisher_information, gradient, hessian, objective
from grpo_theory.problem import Problem
from grpo_theory.problem.logit_map import TabularMap

GRADIENT_TOLERANCE = 1e-9
RANK_TOLERANCE = 1e-9


def find_optimum(problem: Problem, theta0: ArrayLike) -> Array:
    """Find a maximiser from a start: a trust region first, Newton's method to the end.

    For tabular logits with a KL penalty the maximiser is known, pi* proportional to reference * exp(E[Z|k] / strength) over the
    responses; its logits are returned with mean zero at each prefix.

    Raises
    ------
    ValueError
        If no interior maximiser is found: without a penalty there may be none.
    """
    start = problem.policy.check_theta(theta0, "theta0")
    if type(problem.policy.logit_map) is TabularMap and problem.kl is not None:
        paths = problem.policy.paths
        logits = paths.conditionals(np.log(problem.kl.reference) + problem.bandit.mean_reward / problem.kl.strength)
        return (logits - paths.by_prefix(logits) / paths.vocabulary_size).reshape(-1)

    def loss(theta: Array) -> float:
        return -float(objective(problem, theta))

    def slope(theta: Array) -> Array:
        return -gradient(problem, theta)

    def curvature(theta: Array) -> Array:
        return -hessian(problem, theta)

    theta = np.asarray(minimize(loss, start, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-10}).x)
    for _ in range(20):
        step = np.linalg.pinv(hessian(problem, theta), rcond=1e-12, hermitian=True) @ gradient(problem, theta)
        theta = theta - step
        if np.linalg.norm(step) <= 1e-14 * max(1.0, float(np.linalg.norm(theta))):
            break
    check_optimum(problem, theta)
    return theta


def check_optimum(problem: Problem, theta: ArrayLike) -> tuple[Array, Array]:
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
    theta = problem.policy.check_theta(theta)
    slope = float(np.linalg.norm(gradient(problem, theta)))
    eigenvalues, eigenvectors = np.linalg.eigh(-hessian(problem, theta))
    scale = float(np.abs(eigenvalues).max())
    if scale <= 1e-12 and slope <= GRADIENT_TOLERANCE:
        raise ValueError("optimum must have a direction of negative curvature, and the objective is flat in all")
    if slope > GRADIENT_TOLERANCE * scale:
        raise ValueError(f"optimum must be a stationary point, got a gradient of norm {slope:.3g} at a curvature of {scale:.3g}")
    if eigenvalues[0] < -RANK_TOLERANCE * scale:
        raise ValueError(f"optimum must be a maximiser, got a direction of positive curvature {-eigenvalues[0]:.3g}")
    identifiable = eigenvalues > RANK_TOLERANCE * scale
    _check_interior(problem, theta, eigenvectors[:, ~identifiable])
    return eigenvalues[identifiable], eigenvectors[:, identifiable]


def _check_interior(problem: Problem, theta: Array, flat: Array) -> None:
    """Raise if a flat direction, one of the columns of (d, s), moves the uniform policy and no longer moves this one."""
    point = problem.at(theta)
    uniform = np.full_like(point.token_probabilities, 1.0 / problem.policy.paths.vocabulary_size)
    everywhere = fisher_information(problem, uniform)
    here, there = (flat.T @ form @ flat for form in (fisher_information(problem, point.token_probabilities), everywhere))
    least = RANK_TOLERANCE * float(np.linalg.norm(everywhere, 2))
    ranks = [int((np.linalg.eigvalsh(form) > least).sum()) for form in (here, there)]
    if ranks[0] < ranks[1]:
        raise ValueError(
            f"optimum must be interior, and the policy is deterministic along {ranks[1] - ranks[0]} of its directions: "
            f"the smallest probability is {point.probabilities[problem.bandit.prompt_weights > 0.0].min():.3g}"
        )
