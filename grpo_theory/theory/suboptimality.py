"""Upper bounds on the mean suboptimality gap: Lemma 6 and Lemma 14 of arXiv 2603.01162, every constant explicit."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_continuous_lyapunov

from grpo_theory.estimation import Estimator
from grpo_theory.exact import Region, check_optimum, gradient_law, gradient_mean
from grpo_theory.exact.mean_updates import find_forgetful
from grpo_theory.jit import kernel
from grpo_theory.problem import Problem
from grpo_theory.schedule import Harmonic
from grpo_theory.theory.weighted_chi_square import LawDistance, WeightedChiSquare
from grpo_theory.validation import (
    Array,
    as_count,
    as_not_negative,
    as_numbers,
    as_positive,
    as_real_array,
    check_shape,
    shown,
    typed,
)

MOST_LEVEL, LEAST_EPSILON = 1e100, 1e-100
"""The largest gap, noise, step or epsilon, and the smallest epsilon or step: their products are numbers."""


def _as_level(name: str, value: float) -> float:
    """Return a noise or a gap as a float that is finite and not negative."""
    number = as_not_negative(name, value)
    if number > MOST_LEVEL:
        raise ValueError(f"{name} must be at most {MOST_LEVEL:g}, got {value}")
    return number


def _as_numbers_of_steps(n: ArrayLike, least: int) -> Array:
    """Return numbers of steps as floats, none below the least."""
    n = as_numbers("n", n)
    if not (n >= least).all():
        raise ValueError(f"n must be at least {least}, got {n.min():g}")
    if (n > MOST_LEVEL).any():
        raise ValueError(f"n must be at most {MOST_LEVEL:g}, got {n.max():g}")
    return n


@typed
def constant_step_bound(region: Region, noise: float, step: float, start_gap: float, n: ArrayLike) -> Array:
    """Return Lemma 6(a)'s bound on E Delta_n for a constant step, shape of n.

    Theorem (Lemma 6(a), proved again in docs/derivations.md, section 7).  Let J be L-smooth with Polyak-Lojasiewicz constant mu
    over the region, and beta < 1/(2L).  Let the estimator be unbiased there, with mean squared error at most M = ``noise``.  Then

        E Delta_n <= (1 - 2 mu beta + L mu beta^2)^n E Delta_0 + L beta^2 M / (4 mu beta - 2 L mu beta^2).

    Projection onto the ball keeps the bound if J falls along rays from the maximiser (``region.steepest_ray <= 0``).

    Raises
    ------
    ValueError
        If the step is not below 1/(2L).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> ball = gt.exact.region(problem, optimum, radius=0.3, reach=0.05)
    >>> bound = gt.theory.constant_step_bound(ball, noise=0.05, step=0.1, start_gap=ball.highest_gap, n=[10, 1000])
    >>> bool(bound[1] < bound[0])
    True
    """
    step, noise, start_gap = as_positive("step", step), _as_level("noise", noise), _as_level("start_gap", start_gap)
    if step < LEAST_EPSILON:
        raise ValueError(f"step must be at least {LEAST_EPSILON:g}, got {step:g}")
    most = 1.0 / (2.0 * region.smoothness)
    if step >= most:
        raise ValueError(f"step must be below 1/(2L) = {most:.4g}, got {step:g}")
    # Lemma 6(a) of arXiv 2603.01162: a step contracts the gap by 1 - 2 mu beta + L mu beta^2, and adds L beta^2 M/2 to it.
    rate = 2.0 * region.pl * step - region.smoothness * region.pl * step**2
    floor = region.smoothness * step**2 * noise / (2.0 * rate)
    return (1.0 - rate) ** _as_numbers_of_steps(n, 0) * start_gap + floor


@typed
def harmonic_step_bound(
    region: Region, noise: float, step_scale: float, n: ArrayLike, *, offset: int = 0, epsilon: float = 1.0
) -> Array:
    """Return Lemma 6(b)'s bound on E Delta_n after n steps beta/(i + offset), shape of n.

    Theorem (Lemma 6(b), with Lemma 14 as corrected; docs/derivations.md, section 7).  Let a be the highest gap of the region, and
    m = n + 1 + offset.  With A = 2 mu beta > 1, B = L mu beta^2 and C = L beta^2 M / 2,

        E Delta_n <= max{ (1 + epsilon) C / ((A - 1) m), a n_0 / m },     n_0 = max(first_index(A, B, epsilon), 1 + offset).

    The one-step inequality behind it needs a step of at most 2/L, that is i + offset >= L beta/2.  It may therefore fail for the
    first steps.  This is harmless: n_0 > (1 + 1/epsilon) L beta/2, and for m <= n_0 the bound is at least a, the highest gap
    there is.

    Raises
    ------
    ValueError
        If beta is not above 1/(2 mu).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> ball = gt.exact.region(problem, optimum, radius=0.3, reach=0.05)
    >>> bound = gt.theory.harmonic_step_bound(ball, noise=0.05, step_scale=1.0 / ball.pl, n=[10_000, 20_000])
    >>> round(float(bound[0] / bound[1]), 2)  # it falls as 1/n
    2.0
    """
    step_scale = _as_level("step_scale", as_positive("step_scale", step_scale))
    noise, offset = _as_level("noise", noise), as_count("offset", offset, 0)
    least = 1.0 / (2.0 * region.pl)
    if step_scale <= least:
        raise ValueError(f"step_scale must be above 1/(2 mu) = {least:.4g}, got {step_scale:g}")
    # Lemma 6(b): the one-step inequality at beta/i is 1 - A/i + B/i^2 and C/i^2 of Lemma 14.
    a = 2.0 * region.pl * step_scale
    b = region.smoothness * region.pl * step_scale**2
    c = region.smoothness * step_scale**2 * noise / 2.0
    start = max(first_index(a, b, epsilon), 1 + offset)
    return sequence_bound(a, c, region.highest_gap, start, _as_numbers_of_steps(n, 0) + 1 + offset, epsilon)


def first_index(a: float, b: float, epsilon: float = 1.0) -> int:
    """Return n_0 = max(ceil(B (1 + epsilon) / (epsilon (A - 1))) + 1, ceil(A)), from which Lemma 14's induction runs.

    As printed the lemma has no ceil(A), and is false without it: see `sequence_bound`.
    """
    # From n >= A on, 1 - A/n + B/n^2 is not negative (docs/derivations.md, section 7.1).
    return max(printed_first_index(a, b, epsilon), ceil(a))


def printed_first_index(a: float, b: float, epsilon: float = 1.0) -> int:
    """Return n_0 as Lemma 14 prints it: ceil(B (1 + epsilon) / (epsilon (A - 1))) + 1.

    Raises
    ------
    ValueError
        If A is not above 1, or B is negative.
    """
    if not 1.0 < a < np.inf:
        raise ValueError(f"a must be above 1, got {a:g}")
    b = _as_level("b", b)
    epsilon = _as_level("epsilon", as_positive("epsilon", epsilon))
    if epsilon < LEAST_EPSILON:
        raise ValueError(f"epsilon must be at least {LEAST_EPSILON:g}, got {epsilon:g}")
    # The induction needs B/n <= (A - 1) epsilon/(1 + epsilon) (docs/derivations.md, section 7.1).
    return ceil(b * (1.0 + epsilon) / (epsilon * (a - 1.0))) + 1


def sequence_bound(a: float, c: float, highest: float, start: int, n: ArrayLike, epsilon: float = 1.0) -> Array:
    """Return Lemma 14's bound max{(1 + epsilon) C / ((A - 1) n), highest * n_0 / n}, shape of n, for a given n_0.

    Lemma 14, corrected (docs/derivations.md, section 7).  Let a_{n+1} <= (1 - A/n + B/n^2) a_n + C/n^2 and 0 <= a_n <= highest,
    with A > 1.  Then the bound holds with n_0 = `first_index`.  With n_0 as printed it can fail where A > n_0, because the
    bracket may be negative at some n >= n_0.  Then a_n = 0 allows a_{n+1} = C/n^2, which can be above the bound.
    """
    n = _as_numbers_of_steps(n, 1)
    # a_n <= K/n by induction from n_0 on, K = max{(1 + epsilon) C/(A - 1), highest n_0} (docs/derivations.md, section 7.1).
    return np.maximum((1.0 + epsilon) * c / ((a - 1.0) * n), highest * start / n)


def largest_sequence(a: float, b: float, c: float, highest: float, steps: int) -> Array:
    """Return the largest value that Lemma 14's hypotheses allow each of a_1..a_steps, shape (steps,).

    The hypotheses hold for the whole infinite sequence.  Where the bracket 1 - A/n + B/n^2 is negative they give two bounds.  The
    largest a_{n+1} follows from a_n = 0.  In addition, a_n itself is at most (C/n^2)/|bracket|, for otherwise no a_{n+1} >= 0
    could follow.  Every value is attained, though not all of them by one sequence.
    """
    largest = np.empty(steps)
    most = highest
    for n in range(1, steps + 1):
        # a_{n+1} <= (1 - A/n + B/n^2) a_n + C/n^2, and where the bracket is negative a_n <= (C/n^2)/|bracket|.
        bracket, added = 1.0 - a / n + b / n**2, c / n**2
        largest[n - 1] = min(highest, most, added / -bracket if bracket < 0.0 else np.inf)
        most = max(bracket, 0.0) * largest[n - 1] + added
    return largest


@typed
def recursion_bound(region: Region, noise: float, steps: ArrayLike, start_gap: float) -> Array:
    """Return the bound from the one-step inequality itself, iterated, shape (n,).

    E Delta_i <= (1 - 2 mu eta_i + L mu eta_i^2) E Delta_{i-1} + L eta_i^2 M / 2: what Lemma 6 starts from, before it is made
    explicit.  The inequality holds for steps of at most 2/L; from 1/L on a longer step contracts less, and it is refused here.

    Raises
    ------
    ValueError
        If a step is not above 0 and at most 1/L.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> ball = gt.exact.region(problem, optimum, radius=0.3, reach=0.05)
    >>> steps = gt.Constant(0.1).steps(50)
    >>> gt.theory.recursion_bound(ball, noise=0.05, steps=steps, start_gap=ball.highest_gap).shape
    (50,)
    """
    steps, noise, start_gap = as_real_array("steps", steps, 1), _as_level("noise", noise), _as_level("start_gap", start_gap)
    if steps.min() <= 0.0:
        raise ValueError(f"steps must be above 0, got {steps.min():g} at step {int(steps.argmin()) + 1}")
    most = 1.0 / region.smoothness
    if steps.max() > most:
        raise ValueError(f"steps must be at most 1/L = {most:.4g}, got {steps.max():g} at step {int(steps.argmax()) + 1}")
    bounds = np.empty(len(steps))
    gap = start_gap
    for i, step in enumerate(steps):
        # J(theta + eta ghat) >= J + eta g . ghat - (L eta^2/2) ||ghat||^2, E||ghat||^2 = ||g||^2 + MSE and ||g||^2 >= 2 mu Delta
        # (docs/derivations.md, section 7).
        contraction = 1.0 - 2.0 * region.pl * step + region.smoothness * region.pl * step**2
        gap = contraction * gap + region.smoothness * step**2 * noise / 2.0
        bounds[i] = gap
    return bounds


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
        # Delta = e' diag(lambda) e/2 with e = Q'(theta - theta*), to second order (docs/derivations.md, section 6).
        return float(0.5 * self.curvatures @ np.diag(covariance))

    def gap_law(self, covariance: Array) -> WeightedChiSquare:
        """Return the law of the gap if Q'(theta - theta*) is normal with mean 0 and covariance C."""
        root = np.sqrt(self.curvatures)
        # C^(1/2) diag(lambda) C^(1/2)/2 has the same eigenvalues as diag(lambda)^(1/2) C diag(lambda)^(1/2)/2
        # (docs/derivations.md, section 6).
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
    find_forgetful(estimator)
    curvatures, directions = check_optimum(problem, optimum)
    sizes = {"batch_size": batch_size, "group_size": group_size}
    theta = problem.policy.check_theta(optimum, "optimum")
    law = gradient_law(problem, theta, estimator, **sizes)
    mean = float(np.linalg.norm(law.mean))
    if mean > 1e-8 * max(1.0, float(np.sqrt(law.trace))):
        raise ValueError(f"optimum must be a zero of the estimator's mean, got a mean of norm {mean:.3g}")
    # A = -Q' m'(theta*) Q, m(theta) the mean of the estimate (docs/derivations.md, section 6).
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
    # The recursion for S is stable if and only if beta > 1/(2 min Re eig A) (docs/derivations.md, section 6).
    least = 1.0 / (2.0 * linear.slowest)
    if not (linear.slowest > 0.0 and step_scale > least):
        raise ValueError(
            f"step_scale must be above 1/(2 lambda_min) = {least:.4g} for the limit law to exist, got {step_scale:g}"
        )
    # S solves (beta A - I/2) S + S (beta A - I/2)' = beta^2 Gamma (docs/derivations.md, section 6).
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
    arrays = linear.curvatures, linear.drift, linear.noise, steps, start
    return fill_gaps(*(np.array(array, dtype=np.float64, order="C") for array in arrays), np.zeros(len(steps)))


@kernel
def fill_gaps(curvatures, drift, noise, steps, covariance, gaps):
    """Return the mean gaps, 0 before; `covariance` (r, r) is that of the start, and at the end that of the last iterate."""
    half, rank = np.empty_like(covariance), len(curvatures)
    for n, step in enumerate(steps):
        # C <- (I - eta A) C (I - eta A)' + eta^2 Gamma; the gap is trace(diag(lambda) C)/2.
        contraction = np.eye(rank) - step * drift
        for i in range(rank):
            for j in range(rank):
                half[i, j] = 0.0
                for k in range(rank):
                    half[i, j] += contraction[i, k] * covariance[k, j]
        for i in range(rank):
            for j in range(rank):
                covariance[i, j] = step**2 * noise[i, j]
                for k in range(rank):
                    covariance[i, j] += half[i, k] * contraction[j, k]
            gaps[n] += 0.5 * curvatures[i] * covariance[i, i]
    return gaps
