"""Stability of gradient ascent near a point."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.exact.objective import hessian
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.validation import as_positive

LARGEST_DIMENSION = 512


class StabilityWarning(RuntimeWarning):
    """A step is too large for the curvature where training starts."""


def spectral_radius(bandit: Bandit, policy: Policy, theta: ArrayLike, step: float, kl: KL | None = None) -> float:
    """Return the spectral radius of I + eta H in the directions in which the objective bends down.

    Gradient ascent with a step eta contracts towards a maximiser in those directions if it is below 1.  If it is above 1, that is
    if eta |h| > 2 for the most negative eigenvalue h of the Hessian H, ascent oscillates away.  Directions in which
    the objective is flat or bends up are left out: there ascent is to move away.

    Parameters
    ----------
    bandit, policy, theta
        The problem, the policy and its parameters (d,).
    step : float
        eta.
    kl : KL, optional
        A penalty, placed in the reward.
    """
    step = as_positive("step", step)
    curvatures = np.linalg.eigvalsh(hessian(bandit, policy, theta, kl))
    bent = curvatures[curvatures < 0.0]
    return float(np.abs(1.0 + step * bent).max()) if bent.size else 1.0


def warn_if_unstable(bandit: Bandit, policy: Policy, theta: ArrayLike, steps: NDArray[np.float64], kl: KL | None = None) -> None:
    """Warn the caller's caller if the steps are too large at a point; see `stability_message`."""
    message = stability_message(bandit, policy, theta, steps, kl)
    if message is not None:
        warnings.warn(message, StabilityWarning, stacklevel=3)


def stability_message(
    bandit: Bandit, policy: Policy, theta: ArrayLike, steps: NDArray[np.float64], kl: KL | None = None
) -> str | None:
    """Say why the steps are too large at a point, or return None: judged by the last, which a run is left with.

    Not judged for policies with more than 512 parameters, whose Hessian is not formed.
    """
    if policy.dimension > LARGEST_DIMENSION:
        return None
    radius = spectral_radius(bandit, policy, theta, float(steps[-1]), kl)
    if radius <= 1.0:
        return None
    return (
        f"schedule ends with a step of {steps[-1]:g}, too large for stability: I + eta H has spectral radius {radius:.3g} > 1 at "
        f"theta0, and the largest stable step there is {steps[-1] * 2.0 / (1.0 + radius):.4g}"
    )
