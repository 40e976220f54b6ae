"""Upper bounds on the mean suboptimality gap: Lemma 6 and Lemma 14 of arXiv 2603.01162, every constant explicit."""

from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact import Region
from grpo_theory.validation import as_count, as_not_negative, as_numbers, as_positive, as_real_array, typed

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
    a = 2.0 * region.pl * step_scale
    b = region.smoothness * region.pl * step_scale**2
    c = region.smoothness * step_scale**2 * noise / 2.0
    start = max(first_index(a, b, epsilon), 1 + offset)
    return sequence_bound(a, c, region.highest_gap, start, _as_numbers_of_steps(n, 0) + 1 + offset, epsilon)


def first_index(a: float, b: float, epsilon: float = 1.0) -> int:
    """Return n_0 = max(ceil(B (1 + epsilon) / (epsilon (A - 1))) + 1, ceil(A)), from which Lemma 14's induction runs.

    As printed the lemma has no ceil(A), and is false without it: see `sequence_bound`.
    """
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
    return ceil(b * (1.0 + epsilon) / (epsilon * (a - 1.0))) + 1


def sequence_bound(a: float, c: float, highest: float, start: int, n: ArrayLike, epsilon: float = 1.0) -> Array:
    """Return Lemma 14's bound max{(1 + epsilon) C / ((A - 1) n), highest * n_0 / n}, shape of n, for a given n_0.

    Lemma 14, corrected (docs/derivations.md, section 7).  Let a_{n+1} <= (1 - A/n + B/n^2) a_n + C/n^2 and 0 <= a_n <= highest,
    with A > 1.  Then the bound holds with n_0 = `first_index`.  With n_0 as printed it can fail where A > n_0, because the
    bracket may be negative at some n >= n_0.  Then a_n = 0 allows a_{n+1} = C/n^2, which can be above the bound.
    """
    n = _as_numbers_of_steps(n, 1)
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
        contraction = 1.0 - 2.0 * region.pl * step + region.smoothness * region.pl * step**2
        gap = contraction * gap + region.smoothness * step**2 * noise / 2.0
        bounds[i] = gap
    return bounds
