"""Constants over a ball around a maximiser: L and mu of the objective, M of an estimator, as Lemma 6 wants them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.exact.maximiser import check_optimum
from grpo_theory.exact.merit import gradient_mse
from grpo_theory.exact.surface import directional_derivatives, hessian_along, objective
from grpo_theory.problem import Problem
from grpo_theory.validation import as_positive, typed

POINTS, ERROR_POINTS, POLISHED = 1024, 64, 4
LEAST_RADIUS = 1e-3
SMALLEST_RADIUS, LARGEST_RADIUS = 1e-50, 1e50
NUMBERS = 1 << 18
"""The numbers of the tables of points at which a function is evaluated together: few enough for a cache."""
DIFFERENCE = 1.5e-8
"""The step of the differences that are the slopes of the polish, relative where it would be lost: the root of the rounding."""


@dataclass(frozen=True)
class Region:
    """A ball around a maximiser, in the identifiable directions, with the constants of the objective over it.

    Attributes
    ----------
    radius : float
    reach : float
        How far outside the ball a single step may end.
    smoothness : float
        L, the largest absolute eigenvalue of the Hessian over the ball of radius + reach.
    pl : float
        mu, the least ||grad J||^2 / (2 Delta) over the ball: the Polyak-Lojasiewicz constant.
    highest_gap : float
        The largest suboptimality gap over the ball.
    steepest_ray : float
        The largest (theta - theta*)' grad J / ||theta - theta*||^2 over the ball of radius + reach.  If it is not positive,
        J falls along every ray from the maximiser, and projection onto the ball lowers no iterate's objective.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> found = gt.exact.region(problem, optimum, radius=0.3, reach=0.05)
    >>> bool(found.highest_gap > 0.0), bool(found.steepest_ray <= 0.0)  # J falls along every ray
    (True, True)
    """

    radius: float
    reach: float
    smoothness: float
    pl: float
    highest_gap: float
    steepest_ray: float


@typed
def region(problem: Problem, optimum: ArrayLike, *, radius: float, reach: float) -> Region:
    """Find the constants of Lemma 6 of arXiv 2603.01162 over a ball, by optimisation.

    A softmax policy has no global Polyak-Lojasiewicz constant (far out all gradients vanish), so the lemma needs a region.  Each
    extreme is sought over a fixed net of 1,024 low-discrepancy points (scrambled Sobol) of the ball.  Every other point lies on
    the ball's surface.  The best four are polished by sequential quadratic programming.  The extremes are found, not certified: a
    search misses an extreme that no point of the net leads to.  The ball lies in the identifiable directions.  The objective may
    also be flat in a direction that moves the policy (rewards differ by chance alone there).  Iterates then leave the ball, and
    its constants no longer hold for them.

    Parameters
    ----------
    problem : Problem
    optimum : array_like, shape (d,)
        An interior maximiser; it is checked.
    radius, reach : float
        Of the ball, and how far outside it a single step may end (`longest_estimate` times the step), in the norm of theta.

    Returns
    -------
    Region

    Raises
    ------
    ValueError
        If the point is not a maximiser, or a point of the ball is higher, because then no mu is above 0.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> found = gt.exact.region(problem, optimum, radius=0.3, reach=0.05)
    >>> bool(0.0 < found.pl <= found.smoothness)
    True
    """
    radius, reach = _as_radius("radius", radius), _as_radius("reach", reach)
    _, directions = check_optimum(problem, optimum)
    best = problem.policy.check_theta(optimum)
    highest = float(objective(problem, best))

    def gap(points: Array) -> Array:
        return np.asarray(highest - objective(problem, best + points @ directions.T))

    def curvature(points: Array) -> Array:
        forms = hessian_along(problem, best + points @ directions.T, directions.T)
        return np.abs(np.linalg.eigvalsh(forms)).max(axis=-1)

    def flatness(points: Array) -> Array:
        slopes, gaps = directional_derivatives(problem, best + points @ directions.T, np.eye(len(best))), gap(points)
        lower = gaps > 0.0
        return np.where(lower, -(slopes**2).sum(axis=-1) / (2.0 * np.where(lower, gaps, 1.0)), np.inf)

    rank, logits = directions.shape[1], problem.policy.n_prompts * problem.policy.n_logits
    inner, outer = net(rank, radius, POINTS), net(rank, radius + reach, POINTS)
    pl = -largest(in_parts(flatness, logits), inner, radius)
    if not pl > 0.0:
        raise ValueError(
            f"radius must leave out points as high as the optimum, to rounding, got {radius:g}: mu is not above 0 over that ball"
        )
    return Region(
        radius=radius,
        reach=reach,
        smoothness=largest(in_parts(curvature, logits * problem.policy.n_logits), outer, radius + reach),
        pl=pl,
        highest_gap=largest(in_parts(gap, logits), inner, radius),
        steepest_ray=steepest_ray(problem, best, radius=radius + reach),
    )


@typed
def steepest_ray(problem: Problem, optimum: ArrayLike, *, radius: float) -> float:
    """Find the largest (theta - theta*)' grad J / ||theta - theta*||^2 over a ball around a maximiser theta*.

    If it is not positive, J falls along every ray from the maximiser: projection onto the ball costs nothing.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> gt.exact.steepest_ray(problem, optimum, radius=0.3) < 0.0
    True
    """
    radius = _as_radius("radius", radius)
    _, directions = check_optimum(problem, optimum)
    best = problem.policy.check_theta(optimum)

    def slope(points: Array) -> Array:
        ascents = directional_derivatives(problem, best + points @ directions.T, directions.T)
        return (points * ascents).sum(axis=1) / (points**2).sum(axis=1)

    numbers = problem.policy.n_prompts * problem.policy.n_logits
    return largest(in_parts(slope, numbers), net(directions.shape[1], radius, POINTS), radius)


@typed
def largest_error(
    problem: Problem,
    optimum: ArrayLike,
    estimator: str | Estimator,
    *,
    radius: float,
    batch_size: int,
    group_size: int,
) -> float:
    """Find the largest mean squared error M of an estimator over a ball around a maximiser.

    The net has 64 points here, because exact errors are expensive.

    Parameters
    ----------
    problem, optimum, radius
        As for `region`.
    estimator : str or Estimator
        One whose exact moments can be enumerated.
    batch_size, group_size : int
        B prompts, G responses each, a step.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> most = gt.exact.largest_error(problem, optimum, "rloo", radius=0.3, batch_size=4, group_size=4)
    >>> bool(most >= gt.gradient_mse(problem, optimum, "rloo", batch_size=4, group_size=4))
    True
    """
    radius = _as_radius("radius", radius)
    _, directions = check_optimum(problem, optimum)
    best = problem.policy.check_theta(optimum)
    sizes = {"batch_size": batch_size, "group_size": group_size}

    def error(point: Array) -> float:
        return gradient_mse(problem, best + directions @ point, estimator, **sizes)

    return largest(one_by_one(error), net(directions.shape[1], radius, ERROR_POINTS), radius)


@typed
def longest_estimate(problem: Problem, optimum: ArrayLike, *, radius: float) -> float:
    """Return a bound on the norm of an estimate over a ball: the longest score times the largest advantage.

    The advantages are those of an estimator that subtracts nothing, a mean of rewards, or a value.  They are at most the largest
    absolute reward or the range of a prompt's rewards, whichever is larger.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> gt.exact.longest_estimate(problem, optimum, radius=0.3) > 0.0
    True
    """
    radius = _as_radius("radius", radius)
    _, directions = check_optimum(problem, optimum)
    best = problem.policy.check_theta(optimum)

    def bound(point: Array) -> float:
        here = problem.at(best + directions @ point)
        advantage = max(float(np.abs(here.rewards).max()), float(np.ptp(here.rewards, axis=1).max()))
        return float(np.sqrt(here.squared_score_norms.max())) * advantage

    return largest(one_by_one(bound), net(directions.shape[1], radius, ERROR_POINTS), radius)


def _as_radius(name: str, value: float) -> float:
    """Return a radius as a float whose square, and that of a point a little inside, is a number."""
    radius = as_positive(name, value)
    if not SMALLEST_RADIUS <= radius <= LARGEST_RADIUS:
        raise ValueError(f"{name} must lie in [{SMALLEST_RADIUS:g}, {LARGEST_RADIUS:g}], got {value}")
    return radius


def net(rank: int, radius: float, points: int) -> Array:
    """Return low-discrepancy points in the ball, every other one on its surface, shape (points, rank)."""
    from scipy.stats import qmc  # slow to import, and seldom wanted

    # One coordinate more than the rank: normal quantiles give the direction, and the last coordinate the length. The seed is
    # fixed, so that the constants of a problem are the same in every run.
    cube = qmc.Sobol(rank + 1, rng=np.random.default_rng(0)).random(points)
    ball = ndtri(np.clip(cube[:, :rank], 1e-12, 1.0 - 1e-12))
    ball /= np.linalg.norm(ball, axis=1)[:, None]
    lengths = np.where(np.arange(points) % 2 == 0, 1.0, np.maximum(cube[:, rank] ** (1.0 / rank), LEAST_RADIUS))
    return radius * lengths[:, None] * ball


Function = Callable[[Array], Array]
"""``function(points)`` of points (P, rank) returns its values there, shape (P,)."""


def one_by_one(function: Callable[[Array], float]) -> Function:
    """Return the function of many points that a function of one point (rank,) is."""
    return lambda points: np.array([function(point) for point in points])


def in_parts(function: Function, numbers: int) -> Function:
    """Return the same function, which is given so few points at once that their tables, of so many numbers each, are small."""
    at_once = max(1, NUMBERS // numbers)
    return lambda points: np.concatenate([function(points[i : i + at_once]) for i in range(0, len(points), at_once)])


def largest(function: Function, points: Array, radius: float) -> float:
    """Return the largest value of a function over a ball: the best points of a net (P, rank), polished."""
    from scipy.optimize import minimize  # slow to import, and seldom wanted

    values = function(points)
    best = float(values.max())
    if not np.isfinite(best):
        return best
    limits: Any = (
        {"type": "ineq", "fun": lambda u: 1.0 - u @ u / radius**2},
        {"type": "ineq", "fun": lambda u: u @ u / radius**2 - LEAST_RADIUS**2},
    )

    @lru_cache(maxsize=1)  # a slope is asked for where the loss has just been
    def loss_at(point: bytes) -> float:
        return -float(function(np.frombuffer(point)[None])[0])

    def loss(point: Array) -> float:
        return loss_at(point.tobytes())

    def slope(point: Array) -> Array:
        # A step that is lost in rounding beside a large coordinate is taken relative to that coordinate instead.
        lost = point + DIFFERENCE == point
        steps = DIFFERENCE * np.where(lost, np.abs(point), 1.0)
        near = point + np.diag(np.where(point < 0.0, -steps, steps))
        return (-function(near) - loss(point)) / (np.diag(near) - point)

    for start in points[np.argsort(values)[-POLISHED:]]:
        end = minimize(loss, start, jac=slope, method="SLSQP", constraints=limits, options={"ftol": 1e-12}).x
        length = float(np.linalg.norm(end)) / radius
        # The solver may end a little outside the ball, or at its centre, where functions like the steepest ray are 0/0.
        best = max(best, -loss(end * np.clip(length, LEAST_RADIUS, 1.0) / length))
    return best
