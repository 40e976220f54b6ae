"""Maximisers of the objective, to machine precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from grpo_theory.estimation import Estimator
from grpo_theory.exact.derivatives import directional_derivatives, fisher_information, gradient, hessian, hessian_along, objective
from grpo_theory.exact.group_law import gradient_mse
from grpo_theory.problem import ChainPoint, Problem
from grpo_theory.problem.logits import TabularMap
from grpo_theory.validation import Array, Rng, as_count, as_generator, as_positive, typed

RADIUS, LARGEST = 1.0, 1000.0
"""The first radius of the trust region, and the largest."""
LEAST = 1e-16
"""Below this radius, relative to the point, a step moves nothing."""
STEPS_A_PARAMETER = 200
HALVINGS = 100
FLAT = 1e-14
"""A curvature, and a slope, that are so small beside the largest are rounding: there is nothing to gain along them."""

Gradient = Callable[[Array], Array]


def minimise(loss: Callable[[Array], float], slope: Gradient, curvature: Gradient, start: Array, tolerance: float) -> Array:
    """Return where steps within a trust region end: at a gradient of norm `tolerance`, or after 200 steps a parameter.

    The rules for the radius are those of Nocedal and Wright, Numerical Optimization, Algorithm 4.1, as in SciPy.

    Parameters
    ----------
    loss, slope, curvature : callable
        The function, its gradient (d,) and its Hessian (d, d).
    start : ndarray, shape (d,)
    tolerance : float

    Returns
    -------
    ndarray, shape (d,)
    """
    theta, radius, value = start, RADIUS, loss(start)
    gradient, hessian = slope(theta), curvature(theta)
    for _ in range(STEPS_A_PARAMETER * start.size):
        if not np.linalg.norm(gradient) > tolerance or radius < LEAST * max(1.0, float(np.linalg.norm(theta))):
            break
        step = best_step(gradient, hessian, radius)
        # m(s) = f + g's + s'Hs/2, ratio = [f(theta) - f(theta + s)]/[m(0) - m(s)] (Nocedal and Wright, Algorithm 4.1).
        promised = -(gradient @ step + 0.5 * step @ hessian @ step)
        if value - promised >= value:  # it promises less than the function rounds to
            break
        trial = loss(theta + step)
        ratio = (value - trial) / promised
        # "not >=" and not "<": a ratio that is NaN, where the loss is no number, must shrink the region too.
        if not ratio >= 0.25:
            radius *= 0.25
        elif ratio > 0.75 and np.linalg.norm(step) > 0.99 * radius:
            radius = min(2.0 * radius, LARGEST)
        if ratio > 0.15:
            theta, value = theta + step, trial
            gradient, hessian = slope(theta), curvature(theta)
    return theta


def best_step(gradient: Array, hessian: Array, radius: float) -> Array:
    """Return the step of at most a radius that minimises a quadratic function: g's + s'Hs / 2.

    In the eigenvectors of H the step is -g_j / (h_j + shift). The shift, at least -min(h), makes the step as long as the radius,
    and is found by halving. If no shift makes the step long enough, the rest of its length lies along the lowest curvature.
    """
    curvatures, directions = np.linalg.eigh(hessian)
    along = directions.T @ gradient
    flat = (np.abs(curvatures) <= FLAT * np.abs(curvatures).max()) & (np.abs(along) <= FLAT * np.linalg.norm(gradient))
    curvatures, along, directions = curvatures[~flat], along[~flat], directions[:, ~flat]
    if curvatures[0] > 0.0:
        inside = -along / curvatures
        if np.linalg.norm(inside) <= radius:
            return np.asarray(directions @ inside)
    # The step is longer than the radius at the shift `low` or as long (it is infinite at a pole), and no longer at `high`.
    low = max(0.0, -curvatures[0])
    # At `high` every h_j + shift is at least ||g||/radius, so that the step -g_j/(h_j + shift) has at most the length radius.
    high = low + np.linalg.norm(along) / radius
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if np.linalg.norm(along / (curvatures + middle)) > radius:
            low = middle
        else:
            high = middle
    step = -along / (curvatures + high)
    # The hard case of Moré and Sorensen: where the gradient has (almost) no part along the lowest curvature, no shift makes
    # the step long enough. What is left of the radius is gone along that direction, downhill.
    left = np.sqrt(max(radius**2 - float(step @ step), 0.0))
    step[0] = -np.copysign(np.hypot(step[0], left), along[0])
    return np.asarray(directions @ step)


GRADIENT_TOLERANCE = 1e-9
TRUSTED = 1e-10
"""The norm of the gradient at which Newton's steps take over from those of the trust region."""
RANK_TOLERANCE = 1e-9
AGREEMENT = 1e-9
"""By how much objectives may differ and count as one, relative to the larger of 1 and the objective."""
SCREENED = 64
WIDEST = 100.0
"""A random start is the best of so many points, and the logits of the points spread by this at most."""


class OptimumWarning(UserWarning):
    """Warns that the search saw a higher objective than at the maximiser it returns.

    Examples
    --------
    >>> import warnings, grpo_theory as gt
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", gt.exact.OptimumWarning)  # an exception where a higher objective was seen
    ...     problem = gt.gallery.problem("kl-linear")
    ...     gt.exact.search_optimum(problem, problem.theta, restarts=4, rng=0).failed
    0
    """


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best maximiser that a search with restarts found.

    Attributes
    ----------
    theta : ndarray, shape (d,)
        An interior local maximiser: that is checked.
    objective : float
        J(theta).
    restarts : int
        How many searches were made, the one from theta0 among them.
    agreeing : int
        How many of them ended within 1e-9 of this objective: one alone is a weak sign that there is no higher one.
    failed : int
        How many of them found no interior maximiser.
    highest : float
        The largest objective that was seen at all.  Above `objective` there is a higher maximum, inside or at infinity.
    is_global : bool
        Whether no policy of the family has a higher objective: known where the maximiser has a closed form, and nowhere else.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> found = gt.exact.search_optimum(problem, problem.theta, restarts=4, rng=0)
    >>> found.restarts, found.failed, bool(found.objective >= gt.objective(problem, problem.theta))
    (4, 0, True)
    """

    theta: Array
    objective: float
    restarts: int
    agreeing: int
    failed: int
    highest: float
    is_global: bool


@typed
def find_optimum(problem: Problem, theta0: ArrayLike | None = None) -> Array:
    """Find a local maximiser from a start: a trust region first, Newton's method to the end.

    The point returned has been checked to be stationary, a maximum to second order, and interior (`check_optimum`).  It has not
    been checked to be the highest maximum.  The objective of a policy with shared features may have several maxima, and theta0
    decides which is found.  `gt.exact.search_optimum` starts anew from many points and says how many agree.

    For tabular logits with a KL penalty the maximiser is known and global: pi* is proportional to
    reference * exp(E[Z|k] / strength) over the responses.  Its logits are returned with mean zero at each prefix.

    Parameters
    ----------
    problem : Problem
    theta0 : array_like, shape (d,), optional
        The problem's own theta if omitted.

    Returns
    -------
    ndarray, shape (d,)

    Raises
    ------
    ValueError
        If no interior maximiser is found from there: without a penalty there may be none.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> bool(abs(gt.exact.gradient(problem, optimum)).max() < 1e-8)
    True
    """
    start = problem.parameters(theta0, "theta0")
    known = _closed_form(problem)
    if known is not None:
        return known
    theta = _ascend(problem, start)
    try:
        check_optimum(problem, theta)
    except ValueError as fault:
        raise ValueError(
            f"theta0 must be a start from which an interior maximiser is found, and the search from it ended elsewhere: {fault}"
        ) from None
    return theta


@typed
def search_optimum(problem: Problem, theta0: ArrayLike | None = None, *, restarts: int = 16, rng: Rng | None = None) -> Optimum:
    """Search for the highest maximiser, from theta0 and from random points.

    A random start is the best of 64 points whose logits spread by 1 to 100 around those of theta0.  Nothing but the closed form
    (tabular logits with a KL penalty) certifies that a maximiser is the global one: see `Optimum`.

    Parameters
    ----------
    problem : Problem
    theta0 : array_like, shape (d,), optional
        The first start; the problem's own theta if omitted.
    restarts : int, default 16
        The number of searches.
    rng : int, SeedSequence or Generator, optional
        The seed of the random starts; fresh entropy if omitted.

    Returns
    -------
    Optimum

    Raises
    ------
    ValueError
        If no search finds an interior maximiser.

    Warns
    -----
    OptimumWarning
        If a higher objective was seen than that of the maximiser returned.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> found = gt.exact.search_optimum(gt.gallery.problem("kl-linear"), restarts=4, rng=0)
    >>> found.agreeing, found.failed
    (4, 0)
    """
    restarts = as_count("restarts", restarts)
    first = problem.parameters(theta0, "theta0")
    generator = as_generator(rng)
    known = _closed_form(problem)
    if known is not None:
        value = float(objective(problem, known))
        return Optimum(known, value, restarts, restarts, 0, value, True)
    norms = np.einsum("mdd->md", problem.policy.tangent(first).gram())
    unit, starts = np.sqrt(norms.mean()) if norms.any() else 1.0, [first]
    for _ in range(restarts - 1):
        spread = np.exp(generator.uniform(0.0, np.log(WIDEST), size=(SCREENED, 1))) / unit
        points = first + spread * generator.normal(size=(SCREENED, first.size))
        starts.append(points[int(np.argmax(objective(problem, points)))])
    ends = [_ascend(problem, start) for start in starts]
    reached = objective(problem, np.array(ends))
    seen = np.concatenate([objective(problem, np.array(starts)), reached])
    is_optimum = np.ones(restarts, dtype=np.bool_)
    for i, theta in enumerate(ends):
        try:
            check_optimum(problem, theta)
        except ValueError:
            is_optimum[i] = False
    if not is_optimum.any():
        raise ValueError(
            f"problem must have an interior maximiser, and none of {restarts} searches found one; "
            f"the highest objective seen is {np.nanmax(seen):.6g}"
        )
    # An end that is no interior maximiser may be higher than all that are; it is reported as `highest`, and never returned.
    values = np.where(is_optimum, reached, -np.inf)
    best, highest = float(values.max()), float(np.nanmax(seen))
    margin = AGREEMENT * max(1.0, abs(best))
    if highest > best + margin:
        warnings.warn(
            f"the search saw an objective of {highest:.6g}, above the {best:.6g} of the best interior maximiser that it found. "
            "The maximum may lie at infinity, or need more restarts",
            OptimumWarning,
            stacklevel=3,
        )
    agreeing = int((values >= best - margin).sum())
    failed = restarts - int(is_optimum.sum())
    return Optimum(ends[int(values.argmax())], best, restarts, agreeing, failed, max(highest, best), False)


def _closed_form(problem: Problem) -> Array | None:
    """Return the maximiser where it is known: for tabular logits with a KL penalty."""
    if type(problem.policy.logit_map) is not TabularMap or problem.kl is None or problem.objective is not None:
        return None
    paths = problem.policy.paths
    # pi*_k is proportional to reference_k exp(E[Z|k]/strength) (docs/derivations.md, section 5).
    logits = paths.conditionals(np.log(problem.kl.reference) + problem.bandit.mean_reward / problem.kl.strength)
    return (logits - paths.by_prefix(logits) / paths.vocabulary_size).reshape(-1)


def _ascend(problem: Problem, start: Array) -> Array:
    """Return where a trust region's steps, and then Newton's, end."""
    theta = minimise(
        lambda at: -float(objective(problem, at)),
        lambda at: -gradient(problem, at),
        lambda at: -hessian(problem, at),
        start,
        TRUSTED,
    )
    for _ in range(20):
        # The pseudoinverse leaves flat directions alone: tabular logits have one at each prompt, where the Hessian is singular.
        step = np.linalg.pinv(hessian(problem, theta), rcond=1e-12, hermitian=True) @ gradient(problem, theta)
        theta = theta - step
        if np.linalg.norm(step) <= 1e-14 * max(1.0, float(np.linalg.norm(theta))):
            break
    return theta


@typed
def check_optimum(problem: Problem, optimum: ArrayLike) -> tuple[Array, Array]:
    """Check that a point (d,) is an interior maximiser, and return its curvatures and identifiable directions.

    Returns
    -------
    curvatures : ndarray, shape (r,)
        The positive eigenvalues of minus the Hessian.
    directions : ndarray, shape (d, r)
        Their eigenvectors Q; along all others the objective is flat, to second order.

    Raises
    ------
    ValueError
        If the point is not stationary, not a maximiser, or not interior.  At a point that is not interior, the objective is flat
        in a direction only because the policy has become deterministic.  The maximum then lies at infinity.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> curvatures, directions = gt.exact.check_optimum(problem, gt.find_optimum(problem, problem.theta))
    >>> curvatures.shape, directions.shape
    ((3,), (3, 3))
    """
    theta = problem.policy.check_theta(optimum, "optimum")
    slope = float(np.linalg.norm(gradient(problem, theta)))
    eigenvalues, eigenvectors = np.linalg.eigh(-hessian(problem, theta))
    scale = float(np.abs(eigenvalues).max())
    if scale <= 1e-12 and slope <= GRADIENT_TOLERANCE:
        raise ValueError(
            "optimum must have a direction of negative curvature, but the objective is flat in every direction there. "
            "Problems without a KL penalty usually have no interior maximum: give the problem one, gt.KL(strength, reference)"
        )
    if slope > GRADIENT_TOLERANCE * scale:
        raise ValueError(f"optimum must be a stationary point, got a gradient of norm {slope:.3g} at a curvature of {scale:.3g}")
    if eigenvalues[0] < -RANK_TOLERANCE * scale:
        raise ValueError(f"optimum must be a maximiser, got a direction of positive curvature {-eigenvalues[0]:.3g}")
    identifiable = eigenvalues > RANK_TOLERANCE * scale
    flat, point = eigenvectors[:, ~identifiable], problem.at(theta)
    if isinstance(point, ChainPoint):
        tokens, size = point.state_probabilities, point.policy.vocabulary_size
    else:
        tokens, size = point.token_probabilities, problem.policy.paths.vocabulary_size
    # A flat direction that moves the uniform policy and no longer moves this one is flat because the policy is deterministic.
    everywhere = fisher_information(problem, np.full_like(tokens, 1.0 / size), theta)
    here, there = (flat.T @ form @ flat for form in (fisher_information(problem, tokens, theta), everywhere))
    least = RANK_TOLERANCE * float(np.linalg.norm(everywhere, 2))
    ranks = [int((np.linalg.eigvalsh(form) > least).sum()) for form in (here, there)]
    if ranks[0] < ranks[1]:
        raise ValueError(
            f"optimum must be interior, and the policy is deterministic along {ranks[1] - ranks[0]} of its directions: "
            f"the smallest probability of a token is {tokens.min():.3g}"
        )
    return eigenvalues[identifiable], eigenvectors[:, identifiable]


POINTS, ERROR_POINTS, POLISHED = 1024, 64, 4
LEAST_RADIUS = 1e-3
SMALLEST_RADIUS, LARGEST_RADIUS = 1e-50, 1e50
NUMBERS = 1 << 18
"""The numbers of the tables of points at which a function is evaluated together: few enough for a cache."""
STEP = 1.5e-8
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
    best, directions = _centre(problem, optimum, radius=radius, reach=reach)
    highest = float(objective(problem, best))

    def gap(points: Array) -> Array:
        return np.asarray(highest - objective(problem, best + points @ directions.T))

    def curvature(points: Array) -> Array:
        matrices = hessian_along(problem, best + points @ directions.T, directions.T)
        return np.abs(np.linalg.eigvalsh(matrices)).max(axis=-1)

    def flatness(points: Array) -> Array:
        # mu is the least ||grad J||^2/(2 gap): Polyak and Lojasiewicz's inequality is ||grad J||^2 >= 2 mu (J* - J).
        slopes, gaps = directional_derivatives(problem, best + points @ directions.T, np.eye(len(best))), gap(points)
        lower = gaps > 0.0
        return np.where(lower, -(slopes**2).sum(axis=-1) / (2.0 * np.where(lower, gaps, 1.0)), np.inf)

    rank, logits = directions.shape[1], problem.policy.n_prompts * problem.policy.n_logits
    inner, outer = net(rank, radius, POINTS), net(rank, radius + reach, POINTS)
    pl = -largest(flatness, inner, radius, logits)
    if not pl > 0.0:
        raise ValueError(
            f"radius must leave out points as high as the optimum, to rounding, got {radius:g}: mu is not above 0 over that ball"
        )
    return Region(
        radius=float(radius),
        reach=float(reach),
        smoothness=largest(curvature, outer, radius + reach, logits * problem.policy.n_logits),
        pl=pl,
        highest_gap=largest(gap, inner, radius, logits),
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
    best, directions = _centre(problem, optimum, radius=radius)

    def slope(points: Array) -> Array:
        # Where (theta - theta*)' grad J <= 0 all along a ray, J falls along it (docs/derivations.md, section 7).
        ascents = directional_derivatives(problem, best + points @ directions.T, directions.T)
        return (points * ascents).sum(axis=1) / (points**2).sum(axis=1)

    numbers = problem.policy.n_prompts * problem.policy.n_logits
    return largest(slope, net(directions.shape[1], radius, POINTS), radius, numbers)


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
    best, directions = _centre(problem, optimum, radius=radius)
    sizes = {"batch_size": batch_size, "group_size": group_size}

    def errors(points: Array) -> Array:
        return np.array([gradient_mse(problem, best + directions @ point, estimator, **sizes) for point in points])

    return largest(errors, net(directions.shape[1], radius, ERROR_POINTS), radius)


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
    best, directions = _centre(problem, optimum, radius=radius)

    def bounds(points: Array) -> Array:
        at = [problem.at(best + directions @ point) for point in points]
        # ||(1/G) sum_i A_i W_i|| <= max |A| max ||W||.
        advantages = [max(np.abs(one.rewards).max(), np.ptp(one.rewards, axis=1).max()) for one in at]
        return np.sqrt([one.squared_score_norms.max() for one in at]) * advantages

    return largest(bounds, net(directions.shape[1], radius, ERROR_POINTS), radius)


def _centre(problem: Problem, optimum: ArrayLike, **radii: float) -> tuple[Array, Array]:
    """Return a maximiser (d,) and its identifiable directions (d, r); raise unless the squares of the radii are numbers."""
    for name, value in radii.items():
        if not SMALLEST_RADIUS <= as_positive(name, value) <= LARGEST_RADIUS:
            raise ValueError(f"{name} must lie in [{SMALLEST_RADIUS:g}, {LARGEST_RADIUS:g}], got {value}")
    return problem.policy.check_theta(optimum, "optimum"), check_optimum(problem, optimum)[1]


def net(rank: int, radius: float, points: int) -> Array:
    """Return low-discrepancy points in the ball, every other one on its surface, shape (points, rank)."""
    from scipy.stats import qmc  # slow to import, and seldom wanted

    # One coordinate more than the rank: normal quantiles give the direction, and the last coordinate the length. The seed is
    # fixed, so that the constants of a problem are the same in every run.
    cube = qmc.Sobol(rank + 1, rng=np.random.default_rng(0)).random(points)
    ball = ndtri(np.clip(cube[:, :rank], 1e-12, 1.0 - 1e-12))
    ball /= np.linalg.norm(ball, axis=1)[:, None]
    # A point drawn evenly from the unit ball of r dimensions has P(length <= t) = t^r: its length is u^(1/r).
    lengths = np.where(np.arange(points) % 2 == 0, 1.0, np.maximum(cube[:, rank] ** (1.0 / rank), LEAST_RADIUS))
    return radius * lengths[:, None] * ball


def largest(function: Callable[[Array], Array], points: Array, radius: float, numbers: int = 1) -> float:
    """Return the largest value of a function over a ball: the best points of a net (P, rank), polished.

    The function is given so few points (..., rank) at once that their tables, of so many numbers each, are small.
    """
    from scipy.optimize import minimize  # slow to import, and seldom wanted

    at_once = max(1, NUMBERS // numbers)
    values = np.concatenate([function(points[i : i + at_once]) for i in range(0, len(points), at_once)])
    best = float(values.max())
    if not np.isfinite(best):
        return best
    limits: Any = (
        {"type": "ineq", "fun": lambda u: 1.0 - u @ u / radius**2},
        {"type": "ineq", "fun": lambda u: u @ u / radius**2 - LEAST_RADIUS**2},
    )

    def loss(point: Array) -> float:
        return -float(function(point[None])[0])

    def slope(point: Array) -> Array:
        # A step that is lost in rounding beside a large coordinate is taken relative to that coordinate instead.
        lost = point + STEP == point
        steps = STEP * np.where(lost, np.abs(point), 1.0)
        near = point + np.diag(np.where(point < 0.0, -steps, steps))
        return (-function(near) - loss(point)) / (np.diag(near) - point)

    for start in points[np.argsort(values)[-POLISHED:]]:
        end = minimize(loss, start, jac=slope, method="SLSQP", constraints=limits, options={"ftol": 1e-12}).x
        length = float(np.linalg.norm(end)) / radius
        # The solver may end a little outside the ball, or at its centre, where functions like the steepest ray are 0/0.
        best = max(best, -loss(end * np.clip(length, LEAST_RADIUS, 1.0) / length))
    return best
