"""Stability of gradient ascent near a point."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact.surface import hessian
from grpo_theory.problem import Problem, TokenChain
from grpo_theory.validation import as_positive, typed

LARGEST_DIMENSION = 512
LARGEST_RECURSION = 1e10
"""The most products that the Hessian of a chain may take for the sake of a warning: about a second."""


class StabilityWarning(RuntimeWarning):
    """Warns that a step size is too large for the curvature where training starts.

    Examples
    --------
    >>> import warnings, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 4, "replications": 2}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     runs = gt.simulate_training(problem, optimum, "rloo", gt.Constant(100.0), **sizes, rng=0)
    >>> caught[0].category is gt.exact.StabilityWarning
    True
    """


@typed
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

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> gt.exact.spectral_radius(problem, optimum, 1.0) < 1.0 < gt.exact.spectral_radius(problem, optimum, 100.0)
    True
    """
    step = as_positive("step", step)
    return _radius(step, _bent(problem, theta))


def _recursion(problem: Problem) -> float:
    """Return about how many products the Hessian of a chain takes; 0 if responses are listed."""
    chain = problem.policy
    if not isinstance(chain, TokenChain):
        return 0.0
    return 3.0 * chain.horizon * chain.n_prompts * problem.bandit.values.size * float(chain.n_logits) ** 3


def _bent(problem: Problem, theta: ArrayLike) -> Array:
    """Return the negative eigenvalues of the Hessian, rising."""
    curvatures = np.linalg.eigvalsh(hessian(problem, theta))
    return np.asarray(curvatures[curvatures < 0.0])


def _radius(step: float, bent: Array) -> float:
    """Return the largest |1 + eta h|, infinite where that is too large for a number."""
    # A step so large that its product with a curvature overflows is unstable, and infinity says so.
    with np.errstate(over="ignore"):
        return float(np.abs(1.0 + step * bent).max()) if bent.size else 1.0


def warn_if_unstable(problem: Problem, theta: ArrayLike, steps: Array) -> None:
    """Warn the caller's caller if the steps are too large at a point; see `stability_message`."""
    message = stability_message(problem, theta, steps)
    if message is not None:
        warnings.warn(message, StabilityWarning, stacklevel=3)


def stability_message(problem: Problem, theta: ArrayLike, steps: Array) -> str | None:
    """Say why the steps are too large at a point, or return None: judged by the last, which a run is left with.

    Policies with more than 512 parameters are not judged, because their Hessian is not formed.  Neither are chains whose Hessian
    a recursion would take long to form.
    """
    if problem.policy.dimension > LARGEST_DIMENSION or _recursion(problem) > LARGEST_RECURSION:
        return None
    bent = _bent(problem, theta)
    radius = _radius(float(steps[-1]), bent)
    if radius <= 1.0:
        return None
    return (
        f"schedule ends with a step of {steps[-1]:g}, too large for stability: I + eta H has spectral radius {radius:.3g} > 1 at "
        f"theta0. The largest stable step there is {-2.0 / bent[0]:.4g}"
    )
