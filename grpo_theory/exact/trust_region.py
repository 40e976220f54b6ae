"""Newton's method within a trust region, for functions of few parameters.

SciPy's `trust-exact` has a loop without an end in its releases 1.14 to 1.16, which singular Hessians with a flat direction reach.
Here every loop has a bound, whatever the numbers are.
"""

from collections.abc import Callable

import numpy as np

from grpo_theory.arrays import Array

RADIUS, LARGEST = 1.0, 1000.0
"""The first radius of the trust region, and the largest."""
LEAST = 1e-16
"""Below this radius, relative to the point, a step moves nothing."""
STEPS_A_PARAMETER = 200
HALVINGS = 100
FLAT = 1e-14
"""A curvature, and a slope, that are so small beside the largest are rounding: there is nothing to gain along them."""

Gradient = Callable[[Array], Array]


def minimise(loss: Callable[[Array], float], slope: Gradient, curvature: Gradient, start: Array, tolerance: float) -> Array:
    """Return where steps within a trust region end: at a gradient of norm `tolerance`, or after 200 steps a parameter.

    The rules for the radius are those of Nocedal and Wright, Numerical Optimization, Algorithm 4.1, as in SciPy.

    Parameters
    ----------
    loss, slope, curvature : callable
        The function, its gradient (d,) and its Hessian (d, d).
    start : ndarray, shape (d,)
    tolerance : float

    Returns
    -------
    ndarray, shape (d,)
    """
    theta, radius, value = start, RADIUS, loss(start)
    gradient, hessian = slope(theta), curvature(theta)
    for _ in range(STEPS_A_PARAMETER * start.size):
        if not np.linalg.norm(gradient) > tolerance or radius < LEAST * max(1.0, float(np.linalg.norm(theta))):
            break
        step = best_step(gradient, hessian, radius)
        promised = -(gradient @ step + 0.5 * step @ hessian @ step)
        if value - promised >= value:  # it promises less than the function rounds to
            break
        trial = loss(theta + step)
        ratio = (value - trial) / promised
        # "not >=" and not "<": a ratio that is NaN, where the loss is no number, must shrink the region too.
        if not ratio >= 0.25:
            radius *= 0.25
        elif ratio > 0.75 and np.linalg.norm(step) > 0.99 * radius:
            radius = min(2.0 * radius, LARGEST)
        if ratio > 0.15:
            theta, value = theta + step, trial
            gradient, hessian = slope(theta), curvature(theta)
    return theta


def best_step(gradient: Array, hessian: Array, radius: float) -> Array:
    """Return the step of at most a radius that minimises a quadratic function: g's + s'Hs / 2.

    In the eigenvectors of H the step is -g_j / (h_j + shift). The shift, at least -min(h), makes the step as long as the radius,
    and is found by halving. If no shift makes the step long enough, the rest of its length lies along the lowest curvature.
    """
    curvatures, directions = np.linalg.eigh(hessian)
    along = directions.T @ gradient
    flat = (np.abs(curvatures) <= FLAT * np.abs(curvatures).max()) & (np.abs(along) <= FLAT * np.linalg.norm(gradient))
    curvatures, along, directions = curvatures[~flat], along[~flat], directions[:, ~flat]
    if curvatures[0] > 0.0:
        inside = -along / curvatures
        if np.linalg.norm(inside) <= radius:
            return np.asarray(directions @ inside)
    # The step is longer than the radius at the shift `low` or as long (it is infinite at a pole), and no longer at `high`.
    low = max(0.0, -curvatures[0])
    high = low + np.linalg.norm(along) / radius
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if np.linalg.norm(along / (curvatures + middle)) > radius:
            low = middle
        else:
            high = middle
    step = -along / (curvatures + high)
    # The hard case of Moré and Sorensen: where the gradient has (almost) no part along the lowest curvature, no shift makes
    # the step long enough. What is left of the radius is gone along that direction, downhill.
    left = np.sqrt(max(radius**2 - float(step @ step), 0.0))
    step[0] = -np.copysign(np.hypot(step[0], left), along[0])
    return np.asarray(directions @ step)
