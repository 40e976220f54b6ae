"""How much the gradient's noise lowers the objective of the learned policy, and the group size with the least loss."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact import gradient, hessian, objective
from grpo_theory.problem import Problem
from grpo_theory.problem.policy import LARGEST_PARAMETER
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.theory.group_size import GroupSizeLaw
from grpo_theory.theory.leave_one_out import leave_one_out_parts
from grpo_theory.theory.next_order import Surroundings, second_order
from grpo_theory.validation import as_count, as_numbers, as_real_array, check_finite, check_shape, typed

_DIFFERENCE = 1e-4


@dataclass(frozen=True, eq=False)
class TrainingLaw:
    """E J(theta_n) = J(noise-free theta_n) - loss, to first order in the noise, for the leave-one-out estimator.

    Theorem (docs/derivations.md, section 14). loss = sum_i [k1_i + k2_i/G_i + k3_i/(G_i (G_i - 1))] / B_i.  The constants weight
    the three parts of the covariance at step i by minus the second derivative of the final objective in theta_i.

    At a fixed budget N = BG and one group size for all steps the loss is (c1 G + c2 + c3/(G-1))/N. Its constants are those of the
    steps, added up.  They can be negative, unlike those of the gradient's error: where the objective is convex, noise helps.

    What is left out begins with `second_order`, of order 1/N^2: compare the two at the budget and the group size in question.

    Attributes
    ----------
    problem : Problem
    steps : ndarray, shape (n,)
        The step sizes.
    path : ndarray, shape (n + 1, d)
        The noise-free iterates, from the start.
    objective : float
        J at the last of them.
    slopes : ndarray, shape (n, d)
        The gradients of the final objective in theta_1..theta_n along the path.
    constants : ndarray, shape (n, 3)
        k1, k2, k3 of each step.
    curvatures : ndarray, shape (n, d, d)
        The second derivatives of the final objective in theta_1..theta_n along the path.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> law = gt.theory.training_law(problem, problem.theta, gt.Constant(0.2), steps=5)
    >>> law.path.shape, law.best_schedule([2, 4, 8]).tolist()
    ((6, 2), [8.0, 8.0, 8.0, 8.0, 8.0])
    >>> bool(abs(law.second_order(64, 4)) < abs(law.loss(64, 4)))
    True
    """

    problem: Problem
    steps: Array
    path: Array
    objective: float
    slopes: Array
    constants: Array
    curvatures: Array

    @property
    def group_size_law(self) -> GroupSizeLaw:
        """The law of one group size for all steps: the constants summed over the steps."""
        return GroupSizeLaw(*(float(total) for total in self.constants.sum(axis=0)))

    @property
    def optimum(self) -> float:
        """The least costly real G >= 2 at fixed BG; infinite if the first-order loss falls forever.

        Infinite with c1 < 0 means that noise helps, not that ever larger groups do: with few prompts in a batch noise did harm.
        """
        law = self.group_size_law
        if law.c1 == 0.0 and law.c3 < 0.0:
            return 2.0
        return max(2.0, float(law.optimum))

    def best_schedule(self, group_sizes: ArrayLike) -> Array:
        """Return the least costly of some group sizes (J,), all at least 2, for each step, shape (n,)."""
        sizes = _as_group_sizes(as_real_array("group_sizes", group_sizes, 1))
        k1, _, k3 = self.constants.T
        return sizes[np.argmin(np.outer(k1, sizes) + np.outer(k3, 1.0 / (sizes - 1.0)), axis=1)]

    def loss(self, budget: int, group_sizes: ArrayLike) -> float:
        """Return the loss at N = BG responses per step, with one group size or one for each step, shape () or (n,)."""
        sizes = _as_group_sizes(as_numbers("group_sizes", group_sizes))
        if sizes.ndim:
            check_shape("group_sizes", sizes, (len(self.constants),), "(n,), the steps")
        factors = np.stack(np.broadcast_arrays(sizes, 1.0, 1.0 / (sizes - 1.0)), axis=-1)
        return float((factors * self.constants).sum()) / as_count("budget", budget, 2)

    def second_order(self, budget: int, group_sizes: ArrayLike) -> Array:
        """Return the second order of the loss, exactly: an estimate of what `loss` is off by, not a bound of it.

        If the second order is small compared with the loss, it is the error of `loss`.  If it is large, it has the right sign and
        says that `loss` should not be relied on (measured: docs/derivations.md, section 14).

        Parameters
        ----------
        budget : int
            N = BG responses per step.
        group_sizes : array_like, shape (), (n,) or (J, n)
            One group size for all steps, one for each step, or J such plans at little more than the cost of one.

        Returns
        -------
        ndarray, shape () or (J,)
        """
        sizes = _as_group_sizes(as_numbers("group_sizes", group_sizes))
        if sizes.ndim:
            check_shape("group_sizes", sizes[-1] if sizes.ndim == 2 else sizes, (len(self.steps),), "(n,), the steps")
        plans = np.broadcast_to(sizes, (sizes.shape[0] if sizes.ndim == 2 else 1, len(self.steps)))
        effect = second_order(self._surroundings, self.steps, self.slopes, self.curvatures, plans)
        losses = -effect / as_count("budget", budget, 2) ** 2
        return losses if sizes.ndim == 2 else losses[0]

    @cached_property
    def _surroundings(self) -> list[Surroundings]:
        if not self.problem.policy.is_linear:
            raise ValueError(
                "policy must have logits that are linear in theta for the second order of the loss, "
                f"got {self.problem.policy!r}: the first order is had without"
            )
        return [Surroundings(self.problem, theta) for theta in self.path]


def _as_group_sizes(sizes: Array) -> Array:
    if not (sizes >= 2.0).all():
        raise ValueError(f"group_sizes must be at least 2, got {sizes.min():g}")
    return sizes


@typed
def training_law(problem: Problem, theta0: ArrayLike, schedule: Schedule | ArrayLike, *, steps: int) -> TrainingLaw:
    """Compute the loss of n training steps with the leave-one-out estimator, to first order in the noise.

    The part left out grows with the number of steps and with the noise, and so with G at a fixed budget N = BG. No batch size is
    safe on every problem.  `TrainingLaw.second_order` says how much the next order is.  The study "group_size" measures how far
    the first order is off: docs/training.md has its table.

    Parameters
    ----------
    problem : Problem
        Small enough for (d, d) matrices.
    theta0 : array_like, shape (d,)
        The start.
    schedule : Schedule or array_like, shape (steps,)
        The step sizes.
    steps : int
        n.

    Returns
    -------
    TrainingLaw

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> law = gt.theory.training_law(problem, problem.theta, gt.Constant(0.2), steps=10)
    >>> bool(law.loss(budget=64, group_sizes=4) > 0.0)
    True
    """
    steps = as_count("steps", steps)
    sizes = step_sizes(schedule, steps)
    path = noise_free_path(problem, theta0, sizes)
    slope = gradient(problem, path[-1])
    curvature = hessian(problem, path[-1])
    d = problem.policy.dimension
    slopes, constants, curvatures = np.empty((steps, d)), np.empty((steps, 3)), np.empty((steps, d, d))
    for i in range(steps - 1, -1, -1):
        slopes[i], curvatures[i] = slope, curvature
        parts = leave_one_out_parts(problem, path[i])
        constants[i] = [-0.5 * sizes[i] ** 2 * np.vdot(curvature, part) for part in parts]
        third = _third_derivative(problem, path[i], slope)
        transition = np.eye(d) + sizes[i] * hessian(problem, path[i])
        curvature = transition @ curvature @ transition + sizes[i] * third
        slope = transition @ slope
    return TrainingLaw(problem, sizes, path, float(objective(problem, path[-1])), slopes, constants, curvatures)


@typed
def noise_free_path(problem: Problem, theta0: ArrayLike, steps: Array) -> Array:
    """Return the iterates of gradient ascent with exact gradients, shape (n + 1, d); the start alone for no steps.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> path = gt.theory.noise_free_path(problem, problem.theta, gt.Constant(0.2).steps(10))
    >>> path.shape, bool(gt.objective(problem, path[-1]) > gt.objective(problem, path[0]))
    ((11, 2), True)
    """
    sizes = as_numbers("steps", steps)
    check_finite("steps", sizes)
    check_shape("steps", sizes, (sizes.size,), "(n,)")
    path = [problem.policy.check_theta(theta0, "theta0")]
    for number, step in enumerate(sizes):
        path.append(path[-1] + step * gradient(problem, path[-1]))
        if np.abs(path[-1]).max() > LARGEST_PARAMETER:
            raise ValueError(f"steps must leave theta below {LARGEST_PARAMETER:g}, and step {number + 1}, {step:g}, does not")
    return np.array(path)


@typed
def noise_free_slopes(problem: Problem, path: Array, steps: Array) -> Array:
    """Return the gradients of the final objective in theta_1..theta_n along a noise-free path (n + 1, d), shape (n, d).

    Each gradient is the next one, carried back through one step of ascent.  The Hessian is applied as a difference of gradients.
    So no (d, d) matrix is formed, and any policy will do.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, steps = gt.gallery.problem("single"), gt.Constant(0.2).steps(10)
    >>> path = gt.theory.noise_free_path(problem, problem.theta, steps)
    >>> gt.theory.noise_free_slopes(problem, path, steps).shape
    (10, 2)
    """
    slopes = np.empty((len(steps), problem.policy.dimension))
    slope = gradient(problem, path[-1])
    for i in range(len(steps) - 1, -1, -1):
        slopes[i] = slope
        scale = _DIFFERENCE / max(float(np.linalg.norm(slope)), _DIFFERENCE)
        forward, backward = (gradient(problem, path[i] + sign * scale * slope) for sign in (1.0, -1.0))
        slope = slope + steps[i] * (forward - backward) / (2.0 * scale)
    return slopes


def _third_derivative(problem: Problem, theta: Array, direction: Array) -> Array:
    """Return the derivative of the Hessian along a direction, shape (d, d), by central differences."""
    length = float(np.linalg.norm(direction))
    if length == 0.0:
        return np.zeros((problem.policy.dimension, problem.policy.dimension))
    step = _DIFFERENCE / length * direction
    difference = hessian(problem, theta + step) - hessian(problem, theta - step)
    return difference * (length / (2.0 * _DIFFERENCE))
