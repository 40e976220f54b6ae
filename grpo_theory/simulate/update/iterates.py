"""What becomes of iterates after a step: they are projected onto a ball, averaged, and measured from the start."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.compiler import F1, F2, F3, function_value, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, where
from grpo_theory.problem import Policy
from grpo_theory.validation import Array, as_positive, as_real_array, check_shape, read_only

PROJECT = numba.void(F2, F1, F1)
FOLLOW_ALONE = numba.void(F2, numba.int64, numba.int64, F3, F3, F2)


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball onto which iterates are projected.

    Parameters
    ----------
    centre : array_like, shape (d,)
    radius : float

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 20, "replications": 8}
    >>> ball = gt.Ball(problem.theta, radius=0.5)
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(1.0), **sizes, ball=ball, rng=0)
    >>> bool(np.linalg.norm(runs.theta - problem.theta, axis=1).max() <= 0.5 + 1e-12)
    True
    >>> ball.as_array(problem.policy).shape
    (3,)
    """

    centre: ArrayLike
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", read_only(as_real_array("centre", self.centre, 1)))
        as_positive("radius", self.radius)

    def as_array(self, policy: Policy) -> Array:
        """Return the centre followed by the radius, shape (d + 1,)."""
        centre = np.asarray(self.centre)
        check_shape("centre", centre, (policy.dimension,), "(d,), the policy's parameters")
        return np.append(centre, self.radius)


@stage
def clear_gradient(gradient):
    """Set the estimates (d, R) to zero, because a step adds to what it finds."""
    for j in range(gradient.shape[0]):
        for i in range(gradient.shape[1]):
            gradient[j, i] = 0.0


@function_value(PROJECT)
def project(theta, ball, distances):
    """Project the iterates (d, R) onto the ball: the centre (d,) followed by the radius."""
    dimension, n = theta.shape
    for i in range(n):
        distances[i] = 0.0
    for j in range(dimension):
        for i in range(n):
            distances[i] += (theta[j, i] - ball[j]) ** 2
    for i in range(n):
        if distances[i] > ball[dimension] ** 2:
            shrink = ball[dimension] / np.sqrt(distances[i])
            for j in range(dimension):
                theta[j, i] = ball[j] + shrink * (theta[j, i] - ball[j])


@function_value(FOLLOW_ALONE)
def follow_alone(theta, share, count, start, average, farthest):
    """Do what `follow` does, for one run alone: its parameters are too many to be lanes."""
    weight, distance = 1.0 / count, 0.0
    for j in range(theta.shape[0]):
        average[share, j, 0] += (theta[j, 0] - average[share, j, 0]) * weight
        gap = theta[j, 0] - start[share, j, 0]
        distance += gap * gap
    farthest[share, 0] = max(farthest[share, 0], distance)


@stage
def follow(theta, share, count, start, average, farthest):
    """Take the iterates (d, n) of a share, the `count`-th of their runs, into the averages and the largest squared distances.

    Averages and starts are (shares, d, n), distances from the start (shares, n).
    """
    weight = 1.0 / count
    for i in range(0, theta.shape[1], WIDTH):
        distance = reals(0.0)
        for j in range(theta.shape[0]):
            x, mean = load(theta, j, i), load(average, share, j, i)
            store(mean + (x - mean) * weight, average, share, j, i)
            gap = x - load(start, share, j, i)
            distance = distance + gap * gap
        largest = load(farthest, share, i)
        store(where(distance > largest, distance, largest), farthest, share, i)
