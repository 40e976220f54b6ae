"""Maximisers of the objective, to machine precision."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact.surface import fisher_information, gradient, hessian, objective
from grpo_theory.exact.trust_region import minimise
from grpo_theory.problem import ChainPoint, Problem
from grpo_theory.problem.logit_map import TabularMap
from grpo_theory.validation import Rng, as_count, as_generator, typed

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
def find_optimum(problem: Problem, theta0: ArrayLike) -> Array:
    """Find a local maximiser from a start: a trust region first, Newton's method to the end.

    The point returned has been checked to be stationary, a maximum to second order, and interior (`check_optimum`).  It has not
    been checked to be the highest maximum.  The objective of a policy with shared features may have several maxima, and theta0
    decides which is found.  `gt.exact.search_optimum` starts anew from many points and says how many agree.

    For tabular logits with a KL penalty the maximiser is known and global: pi* is proportional to
    reference * exp(E[Z|k] / strength) over the responses.  Its logits are returned with mean zero at each prefix.

    Parameters
    ----------
    problem : Problem
    theta0 : array_like, shape (d,)

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
    start = problem.policy.check_theta(theta0, "theta0")
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
    first = problem.policy.check_theta(problem.theta if theta0 is None else theta0, "theta0")
    generator = as_generator(rng)
    known = _closed_form(problem)
    if known is not None:
        value = float(objective(problem, known))
        return Optimum(known, value, restarts, restarts, 0, value, True)
    starts = [first, *_random_starts(problem, first, restarts - 1, generator)]
    ends = [_ascend(problem, start) for start in starts]
    reached = objective(problem, np.array(ends))
    seen = np.concatenate([objective(problem, np.array(starts)), reached])
    is_optimum = np.array([_is_optimum(problem, theta) for theta in ends])
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
    if type(problem.policy.logit_map) is not TabularMap or problem.kl is None:
        return None
    paths = problem.policy.paths
    logits = paths.conditionals(np.log(problem.kl.reference) + problem.bandit.mean_reward / problem.kl.strength)
    return (logits - paths.by_prefix(logits) / paths.vocabulary_size).reshape(-1)


def _random_starts(problem: Problem, centre: Array, count: int, rng: np.random.Generator) -> list[Array]:
    """Return points around a centre, each the best of several whose logits spread by a factor that is drawn anew."""
    norms = np.einsum("mdd->md", problem.policy.tangent(centre).gram())
    unit = np.sqrt(norms.mean()) if norms.any() else 1.0
    starts = []
    for _ in range(count):
        spread = np.exp(rng.uniform(0.0, np.log(WIDEST), size=(SCREENED, 1))) / unit
        points = centre + spread * rng.normal(size=(SCREENED, centre.size))
        starts.append(points[int(np.argmax(objective(problem, points)))])
    return starts


def _is_optimum(problem: Problem, theta: Array) -> bool:
    try:
        check_optimum(problem, theta)
    except ValueError:
        return False
    return True


def _ascend(problem: Problem, start: Array) -> Array:
    """Return where a trust region's steps, and then Newton's, end."""

    def loss(theta: Array) -> float:
        return -float(objective(problem, theta))

    def slope(theta: Array) -> Array:
        return -gradient(problem, theta)

    def curvature(theta: Array) -> Array:
        return -hessian(problem, theta)

    theta = minimise(loss, slope, curvature, start, TRUSTED)
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
    _check_interior(problem, theta, eigenvectors[:, ~identifiable])
    return eigenvalues[identifiable], eigenvectors[:, identifiable]


def _check_interior(problem: Problem, theta: Array, flat: Array) -> None:
    """Raise if a flat direction, one of the columns of (d, s), moves the uniform policy and no longer moves this one."""
    point = problem.at(theta)
    if isinstance(point, ChainPoint):
        tokens, size = point.state_probabilities, point.chain.vocabulary_size
    else:
        tokens, size = point.token_probabilities, problem.policy.paths.vocabulary_size
    everywhere = fisher_information(problem, np.full_like(tokens, 1.0 / size), theta)
    here, there = (flat.T @ form @ flat for form in (fisher_information(problem, tokens, theta), everywhere))
    least = RANK_TOLERANCE * float(np.linalg.norm(everywhere, 2))
    ranks = [int((np.linalg.eigvalsh(form) > least).sum()) for form in (here, there)]
    if ranks[0] < ranks[1]:
        raise ValueError(
            f"optimum must be interior, and the policy is deterministic along {ranks[1] - ranks[0]} of its directions: "
            f"the smallest probability of a token is {tokens.min():.3g}"
        )
