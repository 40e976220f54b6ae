"""The limit law of the suboptimality gap under decreasing steps."""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_continuous_lyapunov

from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, F2, function_value
from grpo_theory.estimation import Estimator
from grpo_theory.exact import check_optimum, gradient_law, gradient_mean
from grpo_theory.problem import Problem
from grpo_theory.schedule import Harmonic
from grpo_theory.theory.distance import LawDistance
from grpo_theory.theory.weighted_chi_square import WeightedChiSquare
from grpo_theory.validation import as_count, as_positive, as_real_array, check_shape, shown, typed

_DIFFERENCE = 1e-5
MOST_STEP = 1e100
"""The square of a step_scale up to it is a number."""


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A training run near a maximiser, in the r identifiable directions.

    Attributes
    ----------
    curvatures : ndarray, shape (r,)
        The positive eigenvalues lambda of minus the Hessian.
    directions : ndarray, shape (d, r)
        Q, their eigenvectors.
    drift : ndarray, shape (r, r)
        Minus the derivative of the estimator's mean at the maximiser; diag(lambda) for an unbiased estimator.
    noise : ndarray, shape (r, r)
        Q' Gamma Q, with Gamma the covariance of the estimate.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> linear = gt.theory.linearise(problem, optimum, "rloo", batch_size=8, group_size=8)
    >>> covariance = gt.theory.limit_covariance(linear, 20.0) / 1000
    >>> bool(np.isclose(linear.gap(covariance), linear.gap_law(covariance).mean()))
    True
    """

    curvatures: Array
    directions: Array
    drift: Array
    noise: Array

    @property
    def slowest(self) -> float:
        """The smallest real part of an eigenvalue of the drift."""
        return float(np.linalg.eigvals(self.drift).real.min())

    def gap(self, covariance: Array) -> float:
        """Return the mean suboptimality gap (1/2) trace(diag(lambda) C) for a covariance C of Q'(theta - theta*)."""
        return float(0.5 * self.curvatures @ np.diag(covariance))

    def gap_law(self, covariance: Array) -> WeightedChiSquare:
        """Return the law of the gap if Q'(theta - theta*) is normal with mean 0 and covariance C."""
        root = np.sqrt(self.curvatures)
        weights = 0.5 * np.linalg.eigvalsh(root[:, None] * covariance * root)
        return WeightedChiSquare(np.maximum(weights, 0.0))


class LimitLaw(WeightedChiSquare):
    """The limit law of (n + offset) times the gap after n steps beta/(i + offset): a `WeightedChiSquare` that knows beta.

    Parameters
    ----------
    weights : array_like, shape (r,)
    step_scale : float
        beta.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> law = gt.theory.LimitLaw([0.4, 0.1], step_scale=10.0)
    >>> gaps = law.rvs(500, rng=0) / 1000  # as of runs of 1,000 steps
    >>> law.compare_gaps(gaps, gt.Harmonic(10.0), 1000).low
    0.0
    """

    def __init__(self, weights: ArrayLike, step_scale: float) -> None:
        super().__init__(weights)
        self.step_scale = as_positive("step_scale", step_scale)

    def compare_gaps(self, gaps: ArrayLike, schedule: Harmonic, steps: int, level: float = 0.95) -> LawDistance:
        """Measure the distance between the suboptimality gaps of simulated runs and this law, with confidence limits.

        Parameters
        ----------
        gaps : array_like, shape (R,)
            J(theta*) - J(theta_n) of each run, as it is: it is multiplied by n + offset here.
        schedule : Harmonic
            The runs' steps; its step_scale must be the law's.
        steps : int
            n.
        level : float, default 0.95
            The confidence level of the limits.

        Raises
        ------
        TypeError
            If the schedule is another, for which this is not the law.
        ValueError
            If the schedule has another step_scale, or a gap is not finite.

        Notes
        -----
        The law is a limit: for finite n the distance is not 0.  The gaps are multiplied by n + offset, which is beta divided by
        the last step.  This leaves less of the distance than n would.
        """
        if not isinstance(schedule, Harmonic):
            raise TypeError(f"schedule must be Harmonic(step_scale, offset), whose limit law this is, got {shown(schedule)}")
        if schedule.step_scale != self.step_scale:
            raise ValueError(f"schedule must have the law's step_scale {self.step_scale:g}, got {schedule.step_scale:g}")
        return self.compare((as_count("steps", steps) + schedule.offset) * as_real_array("gaps", gaps, 1), level)


@typed
def linearise(
    problem: Problem,
    optimum: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
) -> Linearisation:
    """Linearise training around a maximiser at which the estimator's mean vanishes.

    Raises
    ------
    ValueError
        If the point is not a maximiser, or the estimator's mean is not zero there.  An estimator that divides by the standard
        deviation ascends another objective, for instance.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> linear = gt.theory.linearise(problem, optimum, "rloo", batch_size=8, group_size=8)
    >>> bool(np.allclose(linear.drift, np.diag(linear.curvatures)))  # the estimator is unbiased
    True
    """
    curvatures, directions = check_optimum(problem, optimum)
    sizes = {"batch_size": batch_size, "group_size": group_size}
    theta = problem.policy.check_theta(optimum, "optimum")
    law = gradient_law(problem, theta, estimator, **sizes)
    mean = float(np.linalg.norm(law.mean))
    if mean > 1e-8 * max(1.0, float(np.sqrt(law.trace))):
        raise ValueError(f"optimum must be a zero of the estimator's mean, got a mean of norm {mean:.3g}")
    drift = np.empty((len(curvatures), len(curvatures)))
    for i, direction in enumerate(directions.T):
        forward, backward = (
            gradient_mean(problem, theta + sign * _DIFFERENCE * direction, estimator, **sizes) for sign in (1.0, -1.0)
        )
        # By differences of exact means, not from the Hessian: an estimator that divides by the standard deviation has a drift
        # of its own, which need not be symmetric.
        drift[:, i] = -directions.T @ (forward - backward) / (2.0 * _DIFFERENCE)
    noise = directions.T @ law.covariance() @ directions
    return Linearisation(curvatures, directions, drift, (noise + noise.T) / 2.0)


@typed
def limit_covariance(linear: Linearisation, step_scale: float) -> Array:
    """Return the limit S of n Cov(Q'(theta_n - theta*)) for steps beta/n, shape (r, r).

    Theorem (docs/derivations.md, section 6).  With drift A and noise Gamma, and beta > 1/(2 min Re eig A), S solves

        (beta A - I/2) S + S (beta A - I/2)' = beta^2 Gamma.

    Theorem 8 of arXiv 2603.01162 prints the integral ``int exp(-(beta A - I/2) u) Gamma exp(-(beta A - I/2)' u) du``.  This
    integral solves the equation without the factor beta^2, so it is right only for beta = 1.

    Raises
    ------
    ValueError
        If beta is too small for the limit to exist.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> linear = gt.theory.linearise(problem, optimum, "rloo", batch_size=8, group_size=8)
    >>> solution, factor = gt.theory.limit_covariance(linear, 20.0), 20.0 * linear.drift - 0.5 * np.eye(3)
    >>> bool(np.allclose(factor @ solution + solution @ factor.T, 400.0 * linear.noise))
    True
    """
    step_scale = as_positive("step_scale", step_scale)
    if step_scale > MOST_STEP:
        raise ValueError(f"step_scale must be at most {MOST_STEP:g}, got {step_scale:g}")
    least = 1.0 / (2.0 * linear.slowest)
    if not (linear.slowest > 0.0 and step_scale > least):
        raise ValueError(
            f"step_scale must be above 1/(2 lambda_min) = {least:.4g} for the limit law to exist, got {step_scale:g}"
        )
    stable = step_scale * linear.drift - np.eye(len(linear.curvatures)) / 2.0
    solution = np.asarray(solve_continuous_lyapunov(stable, step_scale**2 * linear.noise), dtype=np.float64)
    return (solution + solution.T) / 2.0


@typed
def limit_law(
    problem: Problem,
    optimum: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    step_scale: float,
) -> LimitLaw:
    """Return the limit law of n times the suboptimality gap Delta(theta_n) for steps beta/i.

    Theorem 8 of arXiv 2603.01162, corrected (docs/derivations.md, section 6).  If theta_n converges to the maximiser, then n
    Delta(theta_n) -> sum_k w_k chi^2_1 in law.  The weights w are the eigenvalues of (1/2) S^(1/2) diag(lambda) S^(1/2).  Here
    lambda are the positive eigenvalues of minus the Hessian, and S is the limit covariance (`limit_covariance`).  The maximiser
    need not be unique: flat directions carry no gap.  But a flat direction may move the policy (rewards differ by chance alone
    there).  Training then ends at a random maximiser, and the law is conditional on the one given.

    Parameters
    ----------
    problem : Problem
    optimum : array_like, shape (d,)
        An interior maximiser; it is checked.
    estimator : str or Estimator
        One whose exact moments can be enumerated, and whose mean vanishes at the maximiser.
    batch_size, group_size : int
        B prompts, G responses each, a step.
    step_scale : float
        beta.

    Returns
    -------
    LimitLaw
        A `WeightedChiSquare`; its `compare_gaps` compares training runs with it.

    Raises
    ------
    ValueError
        If the point is not a maximiser, or beta <= 1/(2 lambda_min), where the law does not exist.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> law = gt.limit_law(problem, optimum, "rloo", batch_size=8, group_size=8, step_scale=20.0)
    >>> law.weights.shape, bool(law.ppf(0.95) > law.mean())
    ((3,), True)
    """
    linear = linearise(problem, optimum, estimator, batch_size=batch_size, group_size=group_size)
    return LimitLaw(linear.gap_law(limit_covariance(linear, step_scale)).weights, step_scale)


@typed
def gap_recursion(linear: Linearisation, steps: Array, start: Array) -> Array:
    """Return the mean gap after each step, shape (n,), from the exact linear recursion of the covariance.

    The recursion is ``C_i = (I - eta_i A) C_{i-1} (I - eta_i A)' + eta_i^2 Gamma``.  It begins with C_0 = start (r, r), the
    second moment of Q'(theta_0 - theta*).  The gap is (1/2) trace(diag(lambda) C).  The recursion is exact for a linear drift and
    constant noise.  Otherwise it holds near the maximiser, up to terms of higher order.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> linear = gt.theory.linearise(problem, optimum, "rloo", batch_size=8, group_size=8)
    >>> gaps = gt.theory.gap_recursion(linear, gt.Harmonic(20.0, 50).steps(2000), np.zeros((3, 3)))
    >>> limit = linear.gap(gt.theory.limit_covariance(linear, 20.0))
    >>> round(float(2050 * gaps[-1] / limit), 2)
    1.0
    """
    steps = as_real_array("steps", steps, 1)
    start = as_real_array("start", start, 2)
    check_shape("start", start, linear.noise.shape, "(r, r), the identifiable directions")
    gaps = np.empty(len(steps))
    arrays = linear.curvatures, linear.drift, linear.noise, steps
    fill_gaps(*(np.array(array, dtype=np.float64, order="C") for array in (*arrays, start)), gaps)
    return gaps


@function_value(numba.void(F1, F2, F2, F1, F2, F1))
def fill_gaps(curvatures, drift, noise, steps, covariance, gaps):
    """Fill in the mean gap after each step; `covariance` (r, r) is that of the start, and at the end that of the last iterate."""
    rank = curvatures.size
    contraction, half = np.empty((rank, rank)), np.empty((rank, rank))
    for n in range(steps.size):
        step = steps[n]
        half[:, :] = 0.0
        for i in range(rank):
            for j in range(rank):
                contraction[i, j] = (1.0 if i == j else 0.0) - step * drift[i, j]
        for i in range(rank):
            for k in range(rank):
                for j in range(rank):
                    half[i, j] += contraction[i, k] * covariance[k, j]
        gaps[n] = 0.0
        for i in range(rank):
            for j in range(rank):
                total = step**2 * noise[i, j]
                for k in range(rank):
                    total += half[i, k] * contraction[j, k]
                covariance[i, j] = total
            gaps[n] += 0.5 * curvatures[i] * covariance[i, i]
