"""What can be seen of a policy besides its objective: entropy, divergence, length, support, chances, or a user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem import Objective, Point, Problem
from grpo_theory.validation import Array, as_count, as_distribution, as_numbers, as_positive, check_shape, shown, typed


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

        def parts(point: Point) -> tuple[Array, Array, Array]:
            paths = point.policy.paths
            after = [len(own) > len(tokens) and own[: len(tokens)] == tokens for own in paths.tokens]
            if not any(after):
                raise ValueError(f"prefix must be followed by a token in some response, and {list(tokens)} is not")
            logs = -paths.gather(point.token_log_probabilities)[..., len(tokens)]
            visits = (point.probabilities * after).sum(axis=1, keepdims=True)
            return after * logs / visits, np.asarray(after) / visits, point.probabilities

        def value(point: Point) -> Array:
            logs, _, p = parts(point)
            return (p * logs).sum(axis=1)

        def counts(point: Point) -> Array:
            logs, visited, p = parts(point)
            # grad H = E[1{visited} (-log p_t - H) W]/P(visited): tokens before and after have scores of mean 0 there.
            return logs - visited * (p * logs).sum(axis=1, keepdims=True)

        return cls(f"entropy after {list(tokens)}", value, counts)

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
        points, listed = as_numbers("theta", theta), problem.listed()
        weights = listed.bandit.prompt_weights
        rows = points.reshape(-1, points.shape[-1])
        found = [float(weights @ self.value(listed.at(row))) if np.isfinite(row).all() else np.nan for row in rows]
        return np.array(found).reshape(points.shape[:-1])


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
