"""The objective over theta: its value, gradient and Hessian, exactly; the stability of ascent; and other observables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem import ChainPoint, LogitMap, Objective, Paths, Point, Problem, TokenChain
from grpo_theory.problem.logits import complements, less_mean
from grpo_theory.validation import (
    Array,
    as_count,
    as_distribution,
    as_numbers,
    as_positive,
    as_real_array,
    check_shape,
    shown,
    typed,
)


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
    bandit, kl, weights = problem.bandit, problem.kl, problem.bandit.prompt_weights
    if isinstance(problem.policy, TokenChain):
        found = _at_points(problem, theta, lambda at: weights @ on_chain(problem, at).climbed if np.isfinite(at).all() else nan)
        return found[()]
    paths = problem.policy.paths
    log_pi = paths.along(paths.log_probabilities(problem.policy.logits(theta)))
    pi = np.exp(log_pi)
    if problem.objective is None:
        value = (pi * bandit.mean_reward).sum(axis=-1)
    else:
        value = problem.objective.value(bandit.values, bandit.reward_law(pi))
    if kl is not None:
        # V = sum_k pi_k {E[Z|k] - strength log(pi_k/reference_k)} (docs/derivations.md, section 5).
        value = value - kl.strength * (pi * (log_pi - np.log(kl.reference))).sum(axis=-1)
    return np.asarray((value * weights).sum(axis=-1))[()]


def _at_points(problem: Problem, theta: ArrayLike, function: Callable[[Array], ArrayLike]) -> Array:
    """Return what a function of one parameter (d,) has at each of theta (..., d), along the first axes."""
    points, dimension = as_numbers("theta", theta), problem.policy.dimension
    if points.ndim == 0 or points.shape[-1] != dimension:
        raise ValueError(f"theta must have shape (..., d) with d = {dimension}, got {points.shape}")
    found = np.array([function(np.array(point)) for point in points.reshape(-1, dimension)])
    return found.reshape((*points.shape[:-1], *found.shape[1:]))


def on_chain(problem: Problem, theta: Array) -> ChainPoint:
    """Return a chain at theta (d,), which need not be finite."""
    return ChainPoint(problem.bandit, problem.policy, None, None, theta, problem.objective)  # type: ignore[arg-type]


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
    policy, theta = problem.policy, problem.theta if theta is None else theta
    # d^2 J/dtheta^2 = sum_m Phi_m' H_m Phi_m + sum_mk a_mk d^2 s_mk/dtheta^2 (docs/derivations.md, section 5.1).
    along = policy.tangent(theta).congruence(_hessians_at(problem, theta))
    bent = None if policy.is_linear else policy.logit_map.bend(np.asarray(theta), _gradients_in_logits(problem, theta))
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
        return _at_points(problem, theta, lambda point: weights * on_chain(problem, point).target.gradient_in_logits)
    tables, paths = logit_tables(problem, problem.policy.logits(theta)), problem.policy.paths
    # dJ/dlogits = sum_k pi_k (Z_k - V) c_k, by adding up on the edges first.
    return paths.centre(paths.collect(tables.probabilities * tables.centred * weights), tables.token_probabilities)


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


def hessians_in_logits(problem: Problem, logits: Array) -> Array:
    """Return the Hessian of each prompt's share of the objective in its logits, shape (..., M, D, D); see `hessian`."""
    tables, paths = logit_tables(problem, logits), problem.policy.paths
    strength = 0.0 if problem.kl is None else problem.kl.strength
    lead = tables.probabilities * tables.centred
    logit_gradients = score_logit_gradients(paths, tables.token_probabilities)
    # Section 5 of docs/derivations.md: sum_k pi_k (A_k - strength) c_k c_k' less the covariances at prefixes times E[A | prefix].
    matrices = second_moment(logit_gradients, lead - strength * tables.probabilities)
    matrices -= token_covariances(paths, paths.by_prefix(paths.collect(lead)), tables.token_probabilities)
    if problem.objective is not None:
        # The second derivative of F(q) has sum_lm F_lm (grad q_l)(grad q_m)' besides, grad q_l = sum_k pi_k P(l | k) c_k.
        law = problem.bandit.probabilities
        slopes = np.einsum("...mk,mkl,...mkd->...mld", tables.probabilities, law, logit_gradients)
        matrices += problem.objective.bend(problem.bandit.values, problem.bandit.reward_law(tables.probabilities), slopes)
    return problem.bandit.prompt_weights[:, None, None] * matrices


def second_moment(logit_gradients: Array, weights: Array) -> Array:
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
    step, curvatures = as_positive("step", step), np.linalg.eigvalsh(hessian(problem, theta))
    bent = curvatures[curvatures < 0.0]
    with np.errstate(over="ignore"):
        return float(np.abs(1.0 + step * bent).max()) if bent.size else 1.0


def warn_if_unstable(problem: Problem, theta: ArrayLike, steps: Array) -> None:
    """Warn the caller's caller if the steps are too large at a point: judged by the last, which a run is left with.

    Policies with more than 512 parameters are not judged, because their Hessian is not formed.  Neither are chains whose Hessian
    a recursion would take long to form.
    """
    policy, recursion = problem.policy, 0.0
    if isinstance(policy, TokenChain):
        # About how many products the recursion for the Hessian of a chain takes.
        recursion = 3.0 * policy.horizon * policy.n_prompts * problem.bandit.values.size * float(policy.n_logits) ** 3
    if policy.dimension > LARGEST_DIMENSION or recursion > LARGEST_RECURSION:
        return
    # |1 + eta h| <= 1 for h < 0 exactly where eta <= -2/h: the most negative h gives the largest stable step.
    lowest = float(np.linalg.eigvalsh(hessian(problem, theta))[0])
    # A step so large that its product with a curvature overflows is unstable, and infinity says so.
    radius = abs(1.0 + float(steps[-1]) * lowest)
    if lowest >= 0.0 or radius <= 1.0:
        return
    message = (
        f"schedule ends with a step of {steps[-1]:g}, too large for stability: I + eta H has spectral radius {radius:.3g} > 1 at "
        f"theta0. The largest stable step there is {-2.0 / lowest:.4g}"
    )
    warnings.warn(message, StabilityWarning, stacklevel=3)


class Observed(NamedTuple):
    """An observable at a point: its mean over prompts, its value by prompt (M,), and the gradient of the mean (d,)."""

    value: float
    by_prompt: Array
    gradient: Array


@dataclass(frozen=True, eq=False)
class Observable:
    """A function of policy and problem, by prompt, and the counts of responses that give its gradient.

    Parameters
    ----------
    name : str
    value : callable
        ``value(point)`` returns the value at each prompt, shape (M,).
    counts : callable, optional
        ``counts(point)`` returns c, shape (M, K), with gradient E[c(Y) W].  Of a value E c(Y) that is c itself, if the mean of
        c's own gradient is 0, as that of log pi is.  Without counts there is no gradient.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> seen = gt.observe(problem, problem.theta, gt.Observable.entropy())
    >>> round(seen.value, 4), seen.gradient.round(3).tolist()
    (0.6365, [0.154, -0.154])

    One's own, the largest chance of a response:

    >>> largest = gt.Observable("largest chance", lambda point: point.probabilities.max(axis=1))
    >>> round(gt.observe(problem, problem.theta, largest).value, 3)
    0.667
    """

    name: str
    value: Callable[[Point], Array]
    counts: Callable[[Point], Array] | None = None

    def __repr__(self) -> str:
        return f"Observable({self.name!r})"

    @classmethod
    def entropy(cls) -> Self:
        """Return the entropy of a response, -E log pi; the sum of its tokens' entropies.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Observable.entropy()
        Observable('entropy')
        """
        return cls._mean_of("entropy", lambda point: -_logarithms(point))

    @classmethod
    def token_entropy(cls) -> Self:
        """Return the entropy of a token, that of a response over the mean length.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> tree = gt.gallery.problem("sequence-shared")
        >>> whole, token, length = (
        ...     gt.observe(tree.at_prompt(0), tree.theta, one()).value
        ...     for one in (gt.Observable.entropy, gt.Observable.token_entropy, gt.Observable.length)
        ... )
        >>> round(whole, 9) == round(token * length, 9)
        True
        """

        def parts(point: Point) -> tuple[Array, Array, Array]:
            logs = -_logarithms(point)
            return logs, (point.probabilities * logs).sum(axis=1), point.probabilities @ point.policy.lengths

        def counts(point: Point) -> Array:
            logs, entropy, length = parts(point)
            # d(H/T) = (dH - (H/T) dT)/T.
            return (logs - (entropy / length)[:, None] * point.policy.lengths) / length[:, None]

        return cls("entropy of a token", lambda point: np.divide(*parts(point)[1:]), counts)

    @classmethod
    def entropy_after(cls, prefix: Sequence[int]) -> Self:
        """Return the entropy of the token that follows a prefix, given as tokens.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("two-arms")
        >>> both = gt.Observable.entropy_after([]), gt.Observable.entropy()
        >>> first, whole = (gt.observe(problem, problem.theta, one) for one in both)
        >>> bool(abs(first.value - whole.value) < 1e-15)
        True
        """
        tokens = tuple(as_count("prefix", token, 0) for token in prefix)

        def shares(point: Point) -> tuple[Array, Array]:
            paths = point.policy.paths
            after = [len(own) > len(tokens) and own[: len(tokens)] == tokens for own in paths.tokens]
            if not any(after):
                raise ValueError(f"prefix must be followed by a token in some response, and {list(tokens)} is not")
            logs = -paths.gather(point.token_log_probabilities)[..., len(tokens)]
            visits = (point.probabilities * after).sum(axis=1, keepdims=True)
            return after * logs / visits, np.asarray(after) / visits

        def counts(point: Point) -> Array:
            (logs, visited), p = shares(point), point.probabilities
            # grad H = E[1{visited} (-log p_t - H) W]/P(visited): tokens before and after have scores of mean 0 there.
            return logs - visited * (p * logs).sum(axis=1, keepdims=True)

        return cls(f"entropy after {list(tokens)}", lambda point: (point.probabilities * shares(point)[0]).sum(axis=1), counts)

    @classmethod
    def length(cls) -> Self:
        """Return the mean number of tokens of a response.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Observable.length()
        Observable('length')
        """
        return cls._mean_of(
            "length", lambda point: np.broadcast_to(point.policy.lengths.astype(float), point.probabilities.shape)
        )

    @classmethod
    def kl(cls, reference: ArrayLike) -> Self:
        """Return KL(pi || reference), for probabilities of the responses (M, K), as ``problem.at(theta0).probabilities``.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("two-arms")
        >>> start = problem.at(problem.theta).probabilities
        >>> round(gt.observe(problem, problem.theta + [0.0, 1.0], gt.Observable.kl(start)).value, 3)
        0.081
        """
        known = as_distribution("reference", reference, 2)
        with np.errstate(divide="ignore"):
            logs = np.log(known)

        def counts(point: Point) -> Array:
            check_shape("reference", known, point.probabilities.shape, "(M, K)")
            return np.where(point.probabilities > 0.0, _logarithms(point) - logs, 0.0)

        return cls._mean_of("KL", counts)

    @classmethod
    def chance(cls, response: int) -> Self:
        """Return the probability of a response.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("two-arms")
        >>> round(gt.observe(problem, problem.theta, gt.Observable.chance(1)).value, 3)
        0.667
        """
        number = as_count("response", response, 0)
        return cls._mean_of(
            f"chance of response {number}",
            lambda point: np.tile(np.eye(point.policy.n_responses)[number], (len(point.probabilities), 1)),
        )

    @classmethod
    def support(cls, least: float) -> Self:
        """Return how many responses have at least this probability; it moves in jumps, and has no gradient.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("two-arms")
        >>> gt.observe(problem, problem.theta, gt.Observable.support(0.5)).by_prompt.tolist()
        [1.0]
        """
        floor = as_positive("least", least)
        return cls(f"support of {floor:g}", lambda point: (point.probabilities >= floor).sum(axis=1).astype(float))

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """Return an objective that the problem does not climb, as pass@k while the mean reward is trained.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("two-arms")
        >>> round(gt.observe(problem, problem.theta, gt.Observable.of(gt.Objective.best_of(4))).value, 3)
        0.982
        """

        def counts(point: Point) -> Array:
            return np.einsum("mkl,ml->mk", point.bandit.probabilities, objective.slope(point.bandit.values, point.reward_law))

        return cls(objective.name, lambda point: objective.value(point.bandit.values, point.reward_law), counts)

    @classmethod
    def _mean_of(cls, name: str, counts: Callable[[Point], Array]) -> Self:
        return cls(name, lambda point: (point.probabilities * counts(point)).sum(axis=1), counts)

    def along(self, problem: Problem, theta: ArrayLike) -> Array:
        """Return the mean over prompts at each of theta (..., d), shape (...); NaN where theta is not finite."""
        listed, weights = problem.listed(), problem.bandit.prompt_weights
        return _at_points(listed, theta, lambda at: weights @ self.value(listed.at(at)) if np.isfinite(at).all() else nan)


def _logarithms(point: Point) -> Array:
    """Return log pi(k | m), 0 where the probability is 0, whose product with it is 0."""
    logs = point.policy.paths.along(point.token_log_probabilities)
    return np.where(np.isfinite(logs), logs, 0.0)


def check_observable(name: str, observable: Observable) -> None:
    """Raise TypeError unless it is an `Observable`."""
    if not isinstance(observable, Observable):
        raise TypeError(f"{name} must be an Observable, as gt.Observable.entropy(), got {shown(observable)}")


@typed
def observe(problem: Problem, theta: ArrayLike | None, observable: Observable) -> Observed:
    """Return an observable at theta (d,), exactly, with its gradient.

    The gradient is NaN for an observable without `counts`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.observe(problem, problem.theta, gt.Observable.length()).value
    1.0
    """
    check_observable("observable", observable)
    point = problem.listed().at(theta)
    by_prompt, weights = np.asarray(observable.value(point), dtype=np.float64), point.bandit.prompt_weights
    check_shape("the observable's value", by_prompt, weights.shape, "(M,)")
    gradient = np.full(problem.policy.dimension, np.nan)
    if observable.counts is not None:
        # grad E c(Y) = E[c(Y) W] where E grad c(Y) = 0 (docs/derivations.md, section 39).
        counts = observable.counts(point)
        rewards = np.repeat(counts[:, :, None], point.bandit.values.size, axis=2).reshape(len(counts), -1)
        gradient = point.moments_of(rewards).gradient
    return Observed(float(weights @ by_prompt), by_prompt, gradient)
