"""The objective over theta: its value, gradient and Hessian, exactly; the same in the logits; and the stability of ascent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import exp, log, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.jit import kernel
from grpo_theory.problem import ChainPoint, LogitMap, Paths, Problem, TokenChain
from grpo_theory.problem.logits import complements, less_mean
from grpo_theory.validation import Array, as_numbers, as_positive, as_real_array, check_shape, typed


@typed
def objective(problem: Problem, theta: ArrayLike | None = None) -> Array:
    """Return J(theta) = E[Z] - strength * E KL(pi || reference), shape (...,), for theta (..., d); NaN where theta is.

    Without theta it is the problem's own, as of all functions of a problem and its parameters.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.objective(problem, np.stack([problem.theta, -problem.theta])).round(3).tolist()
    [0.633, 0.467]
    """
    theta = problem.theta if theta is None else theta
    if isinstance(problem.policy, TokenChain):

        def value(point: Array) -> float:
            return float(problem.bandit.prompt_weights @ on_chain(problem, point).value) if np.isfinite(point).all() else nan

        return _at_points(problem, theta, value)[()]
    bandit, kl, paths = problem.bandit, problem.kl, problem.policy.paths
    logits = problem.policy.logits(theta)
    if problem.objective is not None:
        log_pi = paths.along(paths.log_probabilities(logits))
        pi = np.exp(log_pi)
        climbed = problem.objective.value(bandit.values, bandit.reward_law(pi))
        if kl is not None:
            climbed = climbed - kl.strength * (pi * (log_pi - np.log(kl.reference))).sum(axis=-1)
        return np.asarray(climbed @ bandit.prompt_weights)[()]
    points = np.require(logits.reshape(-1, *logits.shape[-2:]), np.float64, ["C", "W"])
    log_reference = np.zeros(bandit.mean_reward.shape) if kl is None else np.log(kl.reference)
    tables, weights = np.array((bandit.mean_reward, log_reference)), np.ascontiguousarray(bandit.prompt_weights)
    strength = 0.0 if kl is None else kl.strength
    objectives = np.empty(len(points))
    fill_objectives(points, tables, weights, strength, paths.edges, paths.lengths, paths.vocabulary_size, objectives)
    return objectives.reshape(logits.shape[:-2])[()]


def _at_points(problem: Problem, theta: ArrayLike, function: Callable[[Array], ArrayLike]) -> Array:
    """Return what a function of one parameter (d,) has at each of theta (..., d), along the first axes."""
    points, dimension = as_numbers("theta", theta), problem.policy.dimension
    if points.ndim == 0 or points.shape[-1] != dimension:
        raise ValueError(f"theta must have shape (..., d) with d = {dimension}, got {points.shape}")
    found = np.array([function(np.array(point)) for point in points.reshape(-1, dimension)])
    return found.reshape((*points.shape[:-1], *found.shape[1:]))


def on_chain(problem: Problem, theta: Array) -> ChainPoint:
    """Return a chain at theta (d,), which need not be finite."""
    return ChainPoint(problem.bandit, problem.policy, problem.kl, problem.log_reference, theta)


@kernel
def fill_objectives(logits, tables, weights, strength, edges, lengths, vocabulary_size, objectives):
    """Fill the objectives (P,) of points with logits (P, M, D), for mean rewards and log reference (2, M, K) and weights (M,)."""
    rewards, log_reference = tables[0], tables[1]
    tokens, log_tokens = np.empty(logits.shape[2]), np.empty(logits.shape[2])
    for point in range(logits.shape[0]):
        objectives[point] = 0.0
        for m in range(logits.shape[1]):
            own = logits[point, m]
            for start in range(0, own.shape[0], vocabulary_size):
                stop = start + vocabulary_size
                # The largest logit is taken off before the exponential, so that none overflows.
                most = own[start]
                for d in range(start + 1, stop):
                    most = max(most, own[d])
                total = 0.0
                for d in range(start, stop):
                    tokens[d] = exp(own[d] - most)
                    total += tokens[d]
                # Without a penalty no logarithm is asked for, and it is a good part of the time.
                log_total, share = log(total) if strength != 0.0 else 0.0, 1.0 / total
                for d in range(start, stop):
                    tokens[d] *= share
                    log_tokens[d] = own[d] - most - log_total
            value = 0.0
            for k in range(edges.shape[0]):
                chance, log_chance = 1.0, 0.0
                for t in range(lengths[k]):
                    chance *= tokens[edges[k, t]]
                    log_chance += log_tokens[edges[k, t]]
                # Where the chance is NaN it is not 0 either.
                if chance != 0.0:
                    # V = sum_k pi_k q_k, q_k = E[Z|k] - strength log(pi_k/reference_k) (docs/derivations.md, section 5).
                    value += chance * (rewards[m, k] - strength * (log_chance - log_reference[m, k]))
            objectives[point] += weights[m] * value


@typed
def gradient(problem: Problem, theta: ArrayLike | None = None) -> Array:
    """Return grad J(theta), shape (d,), for theta of shape (d,), the problem's own if omitted.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.gradient(problem).round(3).tolist()
    [-0.111, 0.111]
    """
    theta = problem.parameters(theta)
    return problem.policy.tangent(theta).adjoint(_gradients_in_logits(problem, theta))


@typed
def directional_derivatives(problem: Problem, theta: ArrayLike | None, directions: ArrayLike) -> Array:
    """Return grad J(theta) . v, shape (..., J), for theta of shape (..., d) and directions v of shape (J, d).

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.exact.directional_derivatives(problem, problem.theta, np.eye(2)).round(3).tolist()
    [-0.111, 0.111]
    """
    theta = problem.theta if theta is None else theta
    directions, logit_map = as_real_array("directions", directions, 2), problem.policy.logit_map
    if not isinstance(logit_map, LogitMap):
        check_shape("directions", directions, (len(directions), problem.policy.dimension), "(J, d)")
        return _at_points(problem, theta, lambda point: directions @ gradient(problem, point))
    logits = problem.policy.logits(directions, "directions")
    return np.einsum("...mk,jmk->...j", _gradients_in_logits(problem, theta), logits)


@typed
def hessian(problem: Problem, theta: ArrayLike | None = None) -> Array:
    """Return the Hessian of the objective, shape (d, d).

    Theorem (docs/derivations.md, section 5).  Let q_k = E[Z|k] - strength log(pi_k / reference_k) and V = sum pi_k q_k, and let
    c_k be the logit gradient of response k.  Let F_k be the sum of diag(p) - p p' over the prefixes that it visits, with p the
    probabilities of the tokens there.  The Hessian in the logits of one prompt is

        sum_k pi_k {(q_k - V - strength) c_k c_k' - (q_k - V) F_k},

    and the Hessian in theta is its congruence with Phi, averaged over prompts.  Where logits are not linear in theta, their
    second derivatives add to it, each times the objective's slope in that logit.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> bool(np.linalg.eigvalsh(gt.hessian(problem, optimum)).max() < 0.0)
    True
    """
    policy, theta = problem.policy, problem.parameters(theta)
    # d^2 J/dtheta^2 = sum_m Phi_m' H_m Phi_m + sum_mk a_mk d^2 s_mk/dtheta^2 (docs/derivations.md, section 5.1).
    along = policy.tangent(theta).congruence(_hessians_at(problem, theta))
    bent = None if policy.is_linear else policy.logit_map.bend(theta, _gradients_in_logits(problem, theta))
    return along if bent is None else along + bent


def hessian_along(problem: Problem, theta: Array, directions: Array) -> Array:
    """Return v' H w for all pairs of directions (J, d), shape (..., J, J), for theta of shape (..., d); see `hessian`."""
    if not problem.policy.is_linear:
        return _at_points(problem, theta, lambda point: directions @ hessian(problem, point) @ directions.T)
    logits = problem.policy.logits(directions, "directions")
    turned = _hessians_at(problem, theta) @ np.moveaxis(logits, 0, -1)
    return np.einsum("jmd,...mdk->...jk", logits, turned)


def _hessians_at(problem: Problem, theta: ArrayLike) -> Array:
    """Return the objective's Hessian in the logits of each prompt, with the prompt's weight, shape (..., M, D, D)."""
    if not isinstance(problem.policy, TokenChain):
        return hessians_in_logits(problem, problem.policy.logits(theta))
    weights = problem.bandit.prompt_weights[:, None, None]
    return _at_points(problem, theta, lambda point: weights * on_chain(problem, point).hessian_matrices())


def token_covariances(paths: Paths, weights: Array, token_probabilities: Array) -> Array:
    """Return the sum over prefixes of weight (diag(p) - p p'), shape (..., M, D, D).

    Parameters
    ----------
    paths : Paths
    weights : ndarray, shape (..., M, D)
        The weight of each edge's prefix.
    token_probabilities : ndarray, shape (..., M, D)
        p, prefix by prefix.
    """
    share = weights * token_probabilities
    matrices = -paths.siblings * share[..., :, None] * token_probabilities[..., None, :]
    diagonal = np.arange(paths.n_logits)
    rows = token_probabilities.reshape(*token_probabilities.shape[:-1], -1, paths.vocabulary_size)
    matrices[..., diagonal, diagonal] = share * complements(rows).reshape(share.shape)
    return matrices


@typed
def fisher_information(problem: Problem, token_probabilities: Array, theta: ArrayLike | None = None) -> Array:
    """Return E[W W'], shape (d, d), for probabilities of tokens given their prefixes (M, D), or given a chain's states (S, V).

    The derivatives of the logits are those at theta (d,), by default the problem's; they differ only if logits are not linear.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.exact.fisher_information(problem, problem.at(problem.theta).probabilities).round(3).tolist()
    [[0.222, -0.222], [-0.222, 0.222]]
    """
    tangent = problem.policy.tangent(problem.parameters(theta))
    if isinstance(problem.policy, TokenChain):
        matrices = on_chain(problem, problem.theta).fisher_matrices(token_probabilities)
    else:
        paths = problem.policy.paths
        with np.errstate(divide="ignore"):
            pi = np.exp(paths.along(np.log(token_probabilities)))
        # E[c c'] = sum over prefixes of P(prefix) (diag(p) - p p'), as scores of different tokens are uncorrelated
        # (T3; docs/derivations.md, section 26).
        matrices = token_covariances(paths, paths.by_prefix(paths.collect(pi)), token_probabilities)
    return tangent.congruence(problem.bandit.prompt_weights[:, None, None] * matrices)


def _gradients_in_logits(problem: Problem, theta: ArrayLike) -> Array:
    """Return the objective's gradient in the logits, with the prompts' weights, shape (..., M, D)."""
    weights = problem.bandit.prompt_weights[:, None]
    if isinstance(problem.policy, TokenChain):
        return _at_points(problem, theta, lambda point: weights * on_chain(problem, point).moments.gradient_in_logits)
    tables, paths = logit_tables(problem, problem.policy.logits(theta)), problem.policy.paths
    # dJ/dlogits = sum_k pi_k (Z_k - V) c_k, by adding up on the edges first.
    return paths.centre(paths.collect(tables.probabilities * tables.centred * weights), tables.token_probabilities)


DIFFERENCE = 5e-3
"""The step, in a logit, of central differences of up to third order: 1e-5 of truncation, 1e-9 of rounding."""


class LogitTables(NamedTuple):
    """What a problem is at logits of any leading shape.

    Attributes
    ----------
    token_probabilities : ndarray, shape (..., M, D)
    probabilities : ndarray, shape (..., M, K)
        pi.
    centred : ndarray, shape (..., M, K)
        The mean reward of each response, or mean slope of another objective, less its penalty and less the mean of these.
    """

    token_probabilities: Array
    probabilities: Array
    centred: Array


def logit_tables(problem: Problem, logits: Array) -> LogitTables:
    """Return the tables at logits (..., M, D)."""
    paths, kl, rewards = problem.policy.paths, problem.kl, problem.bandit.mean_reward
    log_tokens = paths.log_probabilities(logits)
    log_pi = paths.along(log_tokens)
    if problem.objective is not None:
        # Of another objective q_k is the mean of its slopes F_l in place of that of the rewards (section 39).
        slopes = problem.objective.slope(problem.bandit.values, problem.bandit.reward_law(np.exp(log_pi)))
        rewards = np.einsum("mkl,...ml->...mk", problem.bandit.probabilities, slopes)
    if kl is not None:
        # A_k = q_k - V, q_k = E[Z|k] - strength log(pi_k/reference_k) (docs/derivations.md, section 5).
        rewards = rewards - kl.strength * (log_pi - np.log(kl.reference))
    pi = np.exp(log_pi)
    return LogitTables(np.exp(log_tokens), pi, less_mean(rewards, pi))


def score_logit_gradients(paths: Paths, token_probabilities: Array) -> Array:
    """Return the logit gradients of the responses' scores, shape (..., M, K, D), for probabilities of tokens (..., M, D)."""
    # c_k = sum_t (e_edge_t - p_prefix_t) (docs/derivations.md, section 15).
    return paths.centre(paths.incidence, token_probabilities[..., None, :])


def reward_moments(problem: Problem) -> tuple[Array, Array]:
    """Return the second and the third central moment of the reward given prompt and response, each (M, K)."""
    bandit = problem.bandit
    deviations = bandit.values - bandit.mean_reward[:, :, None]
    second, third = ((bandit.probabilities * deviations**power).sum(axis=-1) for power in (2, 3))
    return second, third


def hessians_in_logits(problem: Problem, logits: Array) -> Array:
    """Return the Hessian of each prompt's share of the objective in its logits, shape (..., M, D, D); see `hessian`."""
    tables, paths = logit_tables(problem, logits), problem.policy.paths
    strength = 0.0 if problem.kl is None else problem.kl.strength
    lead = tables.probabilities * tables.centred
    logit_gradients = score_logit_gradients(paths, tables.token_probabilities)
    # Section 5 of docs/derivations.md: sum_k pi_k (A_k - strength) c_k c_k' less the covariances at prefixes times E[A | prefix].
    matrices = _second_moment(logit_gradients, lead - strength * tables.probabilities)
    matrices -= token_covariances(paths, paths.by_prefix(paths.collect(lead)), tables.token_probabilities)
    if problem.objective is not None:
        # The second derivative of F(q) has sum_lm F_lm (grad q_l)(grad q_m)' besides, grad q_l = sum_k pi_k P(l | k) c_k.
        if problem.objective.curvature is None:
            raise ValueError(
                f"{problem.objective!r} must have a curvature for a Hessian: gt.Objective(name, value, slope, curvature)"
            )
        law = problem.bandit.probabilities
        slopes = np.einsum("...mk,mkl,...mkd->...mld", tables.probabilities, law, logit_gradients)
        bent = problem.objective.curvature(problem.bandit.values, problem.bandit.reward_law(tables.probabilities))
        matrices += np.swapaxes(slopes, -1, -2) @ bent @ slopes
    return problem.bandit.prompt_weights[:, None, None] * matrices


def noise_in_logits(problem: Problem, logits: Array) -> Array:
    """Return the three parts of the leave-one-out estimator's covariance in the logits, shape (3, ..., M, D, D).

    They are those of `leave_one_out_parts`, weighted by the prompts' probabilities.  The first lacks its - g g'.
    """
    problem.check_climbs_mean("the noise of the leave-one-out estimator")
    tokens, pi, centred = logit_tables(problem, logits)
    logit_gradients = score_logit_gradients(problem.policy.paths, tokens)
    # E[(Z - V)^2 | k] = (E[Z|k] - V)^2 + Var(Z | k).
    squares = pi * (centred**2 + reward_moments(problem)[0])
    slopes = ((pi * centred)[..., None] * logit_gradients).sum(axis=-2)
    outer = slopes[..., :, None] * slopes[..., None, :]
    # g g', Sigma_oracle = E[(Z - V)^2 W W'] - g g', and Var(Z) F + g g'.
    second_order = squares.sum(axis=-1)[..., None, None] * _second_moment(logit_gradients, pi) + outer
    parts = np.stack((outer, _second_moment(logit_gradients, squares) - outer, second_order))
    return problem.bandit.prompt_weights[:, None, None] * parts


def logit_derivative(function: Callable[[Array], Array], logits: Array, axes: int) -> Array:
    """Return the derivative in each prompt's own logits as one more, last axis, by central differences.

    Parameters
    ----------
    function : callable
        A function of logits (..., M, D). Its values have shape (..., M) followed by `axes` axes, or axes of its own before these.
    logits : ndarray, shape (..., M, D)
    axes : int
        How many axes of the value come after that of the prompts.

    Returns
    -------
    ndarray, shape of the value, and (D,)
    """
    shifts = DIFFERENCE * np.eye(logits.shape[-1])[:, None, :]
    ahead, behind = (function(logits[..., None, :, :] + sign * shifts) for sign in (1.0, -1.0))
    return np.moveaxis(ahead - behind, -2 - axes, -1) / (2.0 * DIFFERENCE)


def _second_moment(logit_gradients: Array, weights: Array) -> Array:
    """Return sum_k weight_k c_k c_k', shape (..., D, D)."""
    return np.swapaxes(logit_gradients, -1, -2) @ (weights[..., None] * logit_gradients)


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
def spectral_radius(problem: Problem, theta: ArrayLike | None, step: float) -> float:
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
    return _radius(problem, theta, as_positive("step", step))[0]


def _radius(problem: Problem, theta: ArrayLike | None, step: float) -> tuple[float, Array]:
    """Return the largest |1 + eta h| over negative eigenvalues h of the Hessian, 1 if there are none, and those, rising."""
    curvatures = np.linalg.eigvalsh(hessian(problem, theta))
    bent = np.asarray(curvatures[curvatures < 0.0])
    # A step so large that its product with a curvature overflows is unstable, and infinity says so.
    with np.errstate(over="ignore"):
        return (float(np.abs(1.0 + step * bent).max()) if bent.size else 1.0), bent


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
    policy, recursion = problem.policy, 0.0
    if isinstance(policy, TokenChain):
        # About how many products the recursion for the Hessian of a chain takes.
        recursion = 3.0 * policy.horizon * policy.n_prompts * problem.bandit.values.size * float(policy.n_logits) ** 3
    if policy.dimension > LARGEST_DIMENSION or recursion > LARGEST_RECURSION:
        return None
    radius, bent = _radius(problem, theta, float(steps[-1]))
    # |1 + eta h| <= 1 for h < 0 exactly where eta <= -2/h: the most negative h gives the largest stable step.
    if radius <= 1.0:
        return None
    return (
        f"schedule ends with a step of {steps[-1]:g}, too large for stability: I + eta H has spectral radius {radius:.3g} > 1 at "
        f"theta0. The largest stable step there is {-2.0 / bent[0]:.4g}"
    )
