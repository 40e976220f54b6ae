"""What a problem climbs in place of the mean reward: functions of each prompt's reward law, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln

from grpo_theory.validation import Array, as_count, as_real_array, check_shape

OfLaw = Callable[[Array, Array], Array]
"""A function of reward values (L,) and their probabilities (..., L)."""
STEP = 1e-5
AGREEMENT = 1e-5
"""A derivative is compared with central differences over a step: they are right to 1e-9 where a function is smooth."""


@dataclass(frozen=True, eq=False)
class Objective:
    """A function F of each prompt's reward law, whose mean over the prompts a problem climbs.

    Let q be the probabilities of the reward values at theta, and F_l the derivative of F in q_l.  With the score W the gradient
    of F(q) is E[F_Z W], a policy gradient with the reward F_Z in place of Z.  A constant added to all F_l changes nothing.

    Parameters
    ----------
    name : str
    value : callable
        ``value(values, law)`` returns F, shape (...), for reward values (L,), ascending, and their probabilities (..., L).
    slope : callable
        ``slope(values, law)`` returns the derivatives F_l, shape (..., L).
    curvature : callable, optional
        ``curvature(values, law)`` returns the second derivatives, shape (..., L, L).  Hessians and maximisers need it.
    estimate : callable, optional
        ``estimate(rewards)`` returns an unbiased estimate of F, shape (...), from the rewards (..., G) of groups: for intervals.
    draws : int, default 0
        How many responses F is about, as four of pass@4; 0 if no such number is known.

    Raises
    ------
    ValueError
        When a problem is made with it: if the slope is not the derivative of the value, or the rewards do not fit.

    Examples
    --------
    Pass@4, the chance that the best of four responses is right:

    >>> import numpy as np, grpo_theory as gt
    >>> bandit, policy = gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)
    >>> problem = gt.Problem(bandit, policy, objective=gt.Objective.best_of(4))
    >>> round(float(gt.objective(problem, problem.theta)), 6) == round(1.0 - 0.45**4, 6)
    True

    One's own, the mean less the variance:

    >>> def value(z, q):
    ...     return q @ z - (q @ z**2 - (q @ z) ** 2)
    >>> def slope(z, q):
    ...     return z - z**2 + 2.0 * (q @ z)[..., None] * z
    >>> careful = gt.Problem(bandit, policy, objective=gt.Objective("mean less variance", value, slope))
    >>> gt.exact.gradient(careful, careful.theta).round(4).tolist()
    [-0.1375, 0.1375]
    """

    name: str
    value: OfLaw
    slope: OfLaw
    curvature: OfLaw | None = None
    estimate: Callable[[Array], Array] | None = None
    draws: int = 0

    def __repr__(self) -> str:
        return f"Objective({self.name!r})"

    @classmethod
    def of_success(cls, name: str, value: Callable, slope: Callable, curvature: Callable | None = None) -> Self:
        """Return f(p), p the chance of the larger of two rewards, from f and its derivatives; f(p) = log p is `log_success`.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.of_success("p squared", lambda p: p**2, lambda p: 2.0 * p)
        Objective('p squared')
        """

        def rate(values: Array, law: Array) -> Array:
            if len(values) != 2:
                raise ValueError(f"objective {name!r} is of a success rate and needs two rewards, got {values.tolist()}")
            return law[..., 1]

        def slopes(values: Array, law: Array) -> Array:
            p = rate(values, law)
            return np.stack([np.zeros_like(p), slope(p)], axis=-1)

        def curvatures(values: Array, law: Array) -> Array:
            bent = np.zeros((*law.shape, 2))
            bent[..., 1, 1] = curvature(rate(values, law)) if curvature else np.nan
            return bent

        return cls(name, lambda values, law: value(rate(values, law)), slopes, curvatures if curvature else None)

    @classmethod
    def log_success(cls) -> Self:
        """Return log p of two rewards: what dividing the advantage by the group's mean climbs (Davis and Recht 2025).

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2), objective=gt.Objective.log_success())
        >>> round(float(gt.objective(problem, problem.theta)), 3)
        -0.693
        """
        return cls.of_success("log of the success rate", np.log, lambda p: 1.0 / p, lambda p: -1.0 / p**2)

    @classmethod
    def arcsin_success(cls) -> Self:
        """Return 2 arcsin sqrt(p): what dividing by the standard deviation climbs (Davis and Recht 2025).

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2), objective=gt.Objective.arcsin_success())
        >>> round(float(gt.objective(problem, problem.theta)), 3)
        1.571
        """
        return cls.of_success(
            "arcsin of the root of the success rate",
            lambda p: 2.0 * np.arcsin(np.sqrt(p)),
            lambda p: (p * (1.0 - p)) ** -0.5,
            lambda p: (p - 0.5) * (p * (1.0 - p)) ** -1.5,
        )

    @classmethod
    def mean_of(cls, worth: ArrayLike) -> Self:
        """Return the mean of what each reward is worth (L,): of several rewards together, see `gt.estimation.apart`.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.mean_of([0.0, 1.0, 1.0, 2.0])
        Objective('mean worth')
        """
        own = as_real_array("worth", worth, 1)

        def value(values: Array, law: Array) -> Array:
            check_shape("worth", own, values.shape, "(L,), a number for each of the problem's reward values")
            return law @ own

        return cls(
            "mean worth",
            value,
            lambda values, law: np.broadcast_to(own, law.shape),
            lambda values, law: np.zeros((*law.shape, own.size)),
            draws=1,
        )

    @classmethod
    def best_of(cls, draws: int) -> Self:
        """Return E max of so many rewards: max@k, and pass@k where rewards are 0 and 1.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.best_of(4)
        Objective('best of 4')
        """
        return replace(cls.order_statistic(draws, draws), name=f"best of {draws}")

    @classmethod
    def order_statistic(cls, rank: int, draws: int) -> Self:
        """Return the mean of the rank-th smallest of so many rewards, a quantile that can be climbed.

        The quantile of finitely many rewards is a step function of the law, so that its own gradient is 0 wherever it exists.

        Examples
        --------
        The median of three:

        >>> import grpo_theory as gt
        >>> gt.Objective.order_statistic(2, 3)
        Objective('2 of 3')
        """
        draws = as_count("draws", draws)
        rank = as_count("rank", rank)
        if rank > draws:
            raise ValueError(f"rank must be at most draws, {draws}, got {rank}")
        r, s = rank - 1, draws - rank
        scale = np.exp(gammaln(draws + 1.0) - gammaln(rank) - gammaln(s + 1.0))

        # E Z_(r) = z_L - sum_{l<L} (z_{l+1} - z_l) P(Z_(r) <= z_l), the last a beta law's distribution function at F_l.
        def value(values: Array, law: Array) -> Array:
            below = np.clip(np.cumsum(law, axis=-1)[..., :-1], 0.0, 1.0)
            return values[-1] - betainc(rank, s + 1.0, below) @ np.diff(values)

        def slope(values: Array, law: Array) -> Array:
            below = np.cumsum(law, axis=-1)[..., :-1]
            return _later(-np.diff(values) * scale * below**r * (1.0 - below) ** s)

        def curvature(values: Array, law: Array) -> Array:
            x = np.cumsum(law, axis=-1)[..., :-1]
            bent = scale * (r * x ** max(r - 1, 0) * (1.0 - x) ** s - s * x**r * (1.0 - x) ** max(s - 1, 0))
            by_value = _later(-np.diff(values) * bent)
            larger = np.maximum.outer(np.arange(len(values)), np.arange(len(values)))
            return by_value[..., larger]  # F_l depends on q_i and q_j where l is at least both

        def estimate(rewards: Array) -> Array:
            size = rewards.shape[-1]
            if size < draws:
                raise ValueError(f"rollouts must have at least {draws} responses per prompt for this objective, got G = {size}")
            # Of the C(G, k) subsets of a group, C(i-1, r-1) C(G-i, k-r) have its i-th smallest reward as their r-th smallest.
            ordered = np.sort(rewards, axis=-1)
            share = np.array([comb(i, r) * comb(size - 1 - i, s) / comb(size, draws) for i in range(size)])
            return ordered[..., 0] + (share * (ordered - ordered[..., :1])).sum(axis=-1)

        return cls(f"{rank} of {draws}", value, slope, curvature, estimate, draws)

    def bend(self, values: Array, law: Array, gradients: Array) -> Array:
        """Return sum_lm F_lm (grad q_l)(grad q_m)', shape (..., D, D), for gradients of the law's entries (..., L, D)."""
        if self.curvature is None:
            raise ValueError(f"{self!r} must have a curvature for a Hessian: gt.Objective(name, value, slope, curvature)")
        return np.swapaxes(gradients, -1, -2) @ self.curvature(values, law) @ gradients

    def check(self, values: Array) -> None:
        """Raise ValueError unless the slope is the derivative of the value at a law of these rewards, by central differences."""
        n = len(values)
        law = np.arange(n, 2.0 * n) / np.arange(n, 2.0 * n).sum()
        moves = STEP * (np.eye(n)[1:] - np.eye(n)[0])
        gained = (np.asarray(self.value(values, law + moves)) - self.value(values, law - moves)) / (2.0 * STEP)
        told = np.asarray(self.slope(values, law))
        if told.shape != (n,) or gained.shape != (n - 1,):
            raise ValueError(
                f"objective {self.name!r} must return values of shape (...) and slopes of shape (..., L) for laws (..., L); "
                f"slopes of {n} rewards have shape {told.shape}, and {n - 1} values shape {gained.shape}"
            )
        wrong = ~(np.abs(told[1:] - told[0] - gained) <= AGREEMENT * max(1.0, np.abs(gained).max()))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"objective {self.name!r} must have the slope that its value has: between rewards {values[0]:g} and "
                f"{values[at + 1]:g} slopes differ by {told[at + 1] - told[0]:.6g}, and values by {gained[at]:.6g} each"
            )


def _later(terms: Array) -> Array:
    """Return the sums over l >= j of terms (..., L - 1), for j = 1..L, shape (..., L)."""
    sums = np.cumsum(terms[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([sums, np.zeros((*terms.shape[:-1], 1))], axis=-1)
