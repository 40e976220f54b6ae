"""What the gradient's noise costs the policy that is learned, and the group size that costs it least."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.exact.objective import gradient, hessian, objective
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.theory.leave_one_out import leave_one_out_parts
from grpo_theory.validation import as_count, as_real_array, check_shape

Array = NDArray[np.float64]

_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class TrainingLaw:
    """E J(theta_n) = J(noise-free theta_n) - loss, to first order in the noise, for the leave-one-out estimator.

    Theorem (docs/derivations.md, section 14).  loss = sum_i [k1_i + k2_i/G_i + k3_i/(G_i (G_i - 1))] / B_i, where k1_i, k2_i and
    k3_i weigh the three parts of the covariance at step i by minus the second derivative of the final objective in theta_i.
    At a fixed budget N = BG and one group size for all steps it is (c1 G + c2 + c3/(G-1))/N with the constants summed over the
    steps.  Unlike those of the gradient's error, the constants can be negative: where the objective is convex noise helps.

    Attributes
    ----------
    path : ndarray, shape (n + 1, d)
        The noise-free iterates, from the start.
    objective : float
        J at the last of them.
    slopes : ndarray, shape (n, d)
        The gradients of the final objective in theta_1..theta_n along the path.
    constants : ndarray, shape (n, 3)
        k1, k2, k3 of each step.
    """

    path: Array
    objective: float
    slopes: Array
    constants: Array

    @property
    def totals(self) -> Array:
        """The constants c1, c2, c3 summed over the steps, shape (3,)."""
        return self.constants.sum(axis=0)

    @property
    def optimum(self) -> float:
        """The least costly real G >= 2 at fixed BG: 1 + sqrt(c3/c1) if both are above 0; infinite if the loss falls for ever."""
        c1, _, c3 = self.totals
        if c1 > 0.0:
            return max(2.0, 1.0 + float(np.sqrt(max(c3, 0.0) / c1)))
        return 2.0 if c1 == 0.0 and c3 < 0.0 else float("inf")

    def best_schedule(self, group_sizes: ArrayLike) -> Array:
        """Return the least costly of some group sizes (J,), all at least 2, for each step, shape (n,)."""
        sizes = _as_group_sizes(as_real_array("group_sizes", group_sizes, 1))
        k1, _, k3 = self.constants.T
        return sizes[np.argmin(np.outer(k1, sizes) + np.outer(k3, 1.0 / (sizes - 1.0)), axis=1)]

    def loss(self, budget: int, group_sizes: ArrayLike) -> float:
        """Return the loss at N = BG responses a step, with one group size or one a step, shape () or (n,)."""
        sizes = _as_group_sizes(np.asarray(group_sizes, dtype=np.float64))
        if sizes.ndim:
            check_shape("group_sizes", sizes, (len(self.constants),), "(n,), the steps")
        factors = np.stack(np.broadcast_arrays(sizes, 1.0, 1.0 / (sizes - 1.0)), axis=-1)
        return float((factors * self.constants).sum()) / as_count("budget", budget, 2)


def _as_group_sizes(sizes: Array) -> Array:
    if not (sizes >= 2.0).all():
        raise ValueError(f"group_sizes must be at least 2, got {sizes.min():g}")
    return sizes


def training_law(
    bandit: Bandit,
    policy: Policy,
    theta0: ArrayLike,
    schedule: Schedule | ArrayLike,
    *,
    steps: int,
    kl: KL | None = None,
) -> TrainingLaw:
    """Compute the loss of n training steps with the leave-one-out estimator, to first order in the noise.

    Parameters
    ----------
    bandit, policy
        The problem and the policy, small enough for (d, d) matrices.
    theta0 : array_like, shape (d,)
        The start.
    schedule : Schedule or array_like, shape (steps,)
        The step sizes.
    steps : int
        n.
    kl : KL, optional
        A penalty, placed in the reward.

    Returns
    -------
    TrainingLaw
    """
    steps = as_count("steps", steps)
    sizes = step_sizes(schedule, steps)
    path = noise_free_path(bandit, policy, theta0, sizes, kl)
    slope = gradient(bandit, policy, path[-1], kl)
    curvature = hessian(bandit, policy, path[-1], kl)
    slopes, constants = np.empty((steps, policy.dimension)), np.empty((steps, 3))
    for i in range(steps - 1, -1, -1):
        slopes[i] = slope
        parts = leave_one_out_parts(bandit, policy, path[i], kl)
        constants[i] = [-0.5 * sizes[i] ** 2 * np.vdot(curvature, part) for part in parts]
        third = _third_derivative(bandit, policy, path[i], slope, kl)
        transition = np.eye(policy.dimension) + sizes[i] * hessian(bandit, policy, path[i], kl)
        curvature = transition @ curvature @ transition + sizes[i] * third
        slope = transition @ slope
    return TrainingLaw(path, float(objective(bandit, policy, path[-1], kl)), slopes, constants)


def noise_free_path(bandit: Bandit, policy: Policy, theta0: ArrayLike, steps: Array, kl: KL | None = None) -> Array:
    """Return the iterates of gradient ascent with exact gradients, shape (n + 1, d)."""
    path = [policy.check_theta(theta0)]
    for step in steps:
        path.append(path[-1] + step * gradient(bandit, policy, path[-1], kl))
    return np.array(path)


def noise_free_slopes(bandit: Bandit, policy: Policy, path: Array, steps: Array, kl: KL | None = None) -> Array:
    """Return the gradients of the final objective in theta_1..theta_n along a noise-free path (n + 1, d), shape (n, d).

    Each is the next carried back through one step of ascent; the Hessian is applied as a difference of gradients, so that no
    (d, d) matrix is formed and any policy will do.
    """
    slopes = np.empty((len(steps), policy.dimension))
    slope = gradient(bandit, policy, path[-1], kl)
    for i in range(len(steps) - 1, -1, -1):
        slopes[i] = slope
        scale = _DIFFERENCE / max(float(np.linalg.norm(slope)), _DIFFERENCE)
        forward, backward = (gradient(bandit, policy, path[i] + sign * scale * slope, kl) for sign in (1.0, -1.0))
        slope = slope + steps[i] * (forward - backward) / (2.0 * scale)
    return slopes


def _third_derivative(bandit: Bandit, policy: Policy, theta: Array, direction: Array, kl: KL | None) -> Array:
    """Return the derivative of the Hessian along a direction, shape (d, d), by central differences."""
    length = float(np.linalg.norm(direction))
    if length == 0.0:
        return np.zeros((policy.dimension, policy.dimension))
    step = _DIFFERENCE / length * direction
    difference = hessian(bandit, policy, theta + step, kl) - hessian(bandit, policy, theta - step, kl)
    return difference * (length / (2.0 * _DIFFERENCE))
