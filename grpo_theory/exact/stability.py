"""Stability of gradient ascent near a point."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact.surface import hessian
from grpo_theory.problem import Problem
from grpo_theory.validation import as_positive

LARGEST_DIMENSION = 512


class StabilityWarning(RuntimeWarning):
    """A step is too large for the curvature where training starts."""


def spectral_radius(problem: Problem, theta: ArrayLike, step: float) -> float:
    """Return the spectral radius of I + eta H in the directions in which the objective bends down.

    Gradient ascent with a step eta contracts towards a maximiser in those directions if it is below 1.  If it is above 1, that is
    if eta |h| > 2 for the most negative eigenvalue h of the Hessian H, ascent oscillates away.  Directions in which
    the objective is flat or bends up are left out: there ascent is to move away.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,)
    step : float
        eta.
    """
    step = as_positive("step", step)
    curvatures = np.linalg.eigvalsh(hessian(problem, theta))
    bent = curvatures[curvatures < 0.0]
    return float(np.abs(1.0 + step * bent).max()) if bent.size else 1.0


def warn_if_unstable(problem: Problem, theta: ArrayLike, steps: Array) -> None:
    """Warn the caller's caller if the steps are too large at a point; see `stability_message`."""
    message = stability_message(problem, theta, steps)
    if message is not None:
        warnings.warn(message, StabilityWarning, stacklevel=3)


def stability_message(problem: Problem, theta: ArrayLike, steps: Array) -> str | None:
    """Say why the steps are too large at a point, or return None: judged by the last, which a run is left with.

    Not judged for policies with more than 512 parameters, whose Hessian is not formed.
    """
    if problem.policy.dimension > LARGEST_DIMENSION:
        return None
    radius = spectral_radius(problem, theta, float(steps[-1]))
    if radius <= 1.0:
        return None
    return (
        f"schedule ends with a step of {steps[-1]:g}, too large for stability: I + eta H has spectral radius {radius:.3g} > 1 at "
        f"theta0, and the largest stable step there is {steps[-1] * 2.0 / (1.0 + radius):.4g}"
    )
