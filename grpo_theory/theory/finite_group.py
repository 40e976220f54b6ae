"""Which objective an estimator climbs with groups of finite size, if rewards are binary (R1; docs/derivations.md, section 24).

The kernel reads only rewards, treats responses alike and sees its group alone. At a prompt with success probability p, its mean
update is h'(p) grad p, with h' a polynomial. The update climbs E[h(p(X))].
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.table import UNREAD, advantage_table
from grpo_theory.validation import as_count, as_not_negative, as_number, as_numbers, as_real_array, check_finite

_GRID = 1 << 12


@dataclass(frozen=True, eq=False)
class FiniteGroupObjective:
    """h with E[update | prompt] = h'(p) grad p, on policy, tokens added up, rewards 0 and 1.

    Attributes
    ----------
    coefficients : ndarray, shape (G,)
        The entry of K is c_K = A(success, if K of the others succeed) - A(failure, if K of the others succeed). With K binomial
        (G - 1, p), h'(p) is E[c_K], a Bernstein polynomial.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> objective = gt.theory.finite_group_objective("grpo", 8)
    >>> objective.slope([0.01, 0.5]).round(2).tolist(), objective.value([0.0, 1.0]).round(3).tolist()
    ([2.44, 1.74], [0.0, 1.964])
    """

    coefficients: Array

    @property
    def group_size(self) -> int:
        """The group size G."""
        return self.coefficients.size

    def slope(self, p: ArrayLike) -> Array:
        """Return h'(p), of the shape of p."""
        p = _probabilities(p)
        size = self.group_size
        return np.asarray(_binomial(np.arange(size), size - 1, p) @ self.coefficients)

    def value(self, p: ArrayLike) -> Array:
        """Return h(p) with h(0) = 0, of the shape of p; binomial probabilities integrate to incomplete beta functions over G."""
        p = _probabilities(p)
        others = np.arange(self.group_size)
        return np.asarray(betainc(others + 1.0, self.group_size - others, p[..., None]) @ self.coefficients / self.group_size)

    @property
    def total(self) -> float:
        """h(1) - h(0), the mean of the coefficients."""
        return float(self.coefficients.mean())

    @property
    def slope_range(self) -> tuple[float, float]:
        """The least and the greatest h'(p) over p in [0, 1], on a grid of 4,097 points with both ends and 1/2."""
        slopes = self.slope(np.linspace(0.0, 1.0, _GRID + 1))
        return float(slopes.min()), float(slopes.max())


def finite_group_objective(
    estimator: str | Estimator, group_size: int, rewards: tuple[float, float] = (0.0, 1.0)
) -> FiniteGroupObjective:
    """Return the objective that an estimator's advantages climb with groups of G responses and binary rewards.

    Parameters
    ----------
    estimator : str or Estimator
        Its advantages read nothing but rewards, and each group by itself.
    group_size : int
    rewards : (float, float), default (0, 1)
        The reward of a failure and the reward of a success, which must be larger.

    Raises
    ------
    ValueError
        If the advantages depend on more than the numbers of successes and failures in the group, so that there is no h.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.finite_group_objective("dr_grpo", 4).slope([0.1, 0.5]).round(3).tolist()  # 1 - 1/G everywhere
    [0.75, 0.75]
    """
    estimator = find(estimator)
    group_size = as_count("group_size", group_size)
    values = as_real_array("rewards", rewards, 1)
    if values.shape != (2,) or values[0] >= values[1]:
        raise ValueError(f"rewards must be that of a failure and a greater one of a success, got {values.tolist()}")
    estimator.check_defined(group_size, values)
    advantage = estimator.advantage
    table = None
    if advantage.reads <= {"rewards", "parameters"}:
        table = advantage_table(advantage, (float(values[0]), float(values[1])), group_size, UNREAD)
    if table is None:
        raise ValueError(
            f"estimator {estimator.name!r} must give advantages that depend on nothing but the number of successes in the group"
        )
    # A line of the table is a multiset of rewards: line n has n responses with the first value, the failures.
    by_failures = table.advantages[0]
    others = np.arange(group_size)
    return FiniteGroupObjective(by_failures[group_size - 1 - others, 1] - by_failures[group_size - others, 0])


def standardised_slope(p: ArrayLike, group_size: int, ddof: float, epsilon: float) -> Array:
    """Return h'(p) of A = (Z - mean)/(sd + epsilon), own sample in both: E[f(1 - f)/(sd + epsilon)]/(p(1 - p)), f = K/G.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> p = np.array([0.01, 0.5])
    >>> gt.theory.standardised_slope(p, 8, ddof=0, epsilon=0.0).round(2).tolist()
    [2.61, 1.86]
    >>> (1.0 / np.sqrt(p * (1.0 - p))).round(2).tolist()  # with division by the true standard deviation
    [10.05, 2.0]
    """
    group_size, ddof, epsilon = _settings(group_size, ddof, epsilon)
    p = _interior(p)
    successes = np.arange(1, group_size)
    share = successes / group_size
    deviation = np.sqrt(group_size / (group_size - ddof) * share * (1.0 - share))
    weights = _binomial(successes, group_size, p)
    return np.asarray(weights @ (share * (1.0 - share) / (deviation + epsilon)) / (p * (1.0 - p)))


def left_out_slope(p: ArrayLike, group_size: int, ddof: float, epsilon: float) -> Array:
    """Return h'(p) of A = (Z - mean of the others)/(sd of the others + epsilon), not divided where that sd is 0.

    It is E[1/(sd + epsilon)], with 1 in the place of the fraction where the others are uniform.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.left_out_slope([0.1, 0.5], 8, ddof=1, epsilon=0.0).round(3).tolist()
    [1.765, 2.001]
    """
    group_size, ddof, epsilon = _settings(group_size, ddof, epsilon)
    p, others = _interior(p), group_size - 1
    successes = np.arange(group_size)
    share = successes / others
    correction = others / (others - ddof) if others > ddof else 0.0
    deviation = np.sqrt(correction * share * (1.0 - share))
    # Both branches of "where" are computed: the 1 that is added to a deviation of 0 keeps the one that is not used finite.
    factors = np.where(deviation > 0.0, 1.0 / (deviation + epsilon + (deviation == 0.0)), 1.0)
    return np.asarray(_binomial(successes, others, p) @ factors)


def relative_slope(p: ArrayLike, group_size: int) -> Array:
    """Return h'(p) of A = (Z - mean)/mean: [1 - (1 - p)^(G-1)]/p.

    It is the slope of the first G - 1 terms of log p in powers of 1 - p.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.relative_slope([0.01, 0.5], 8).round(3).tolist()  # below G - 1, and 1/p in the limit
    [6.793, 1.984]
    """
    group_size = as_count("group_size", group_size, 1)
    p = _interior(p)
    return np.asarray(-np.expm1((group_size - 1) * np.log1p(-p)) / p)


def best_slope(p: ArrayLike, group_size: int, ddof: float, epsilon: float) -> Array:
    """Return h'(p) of A = (best - second best)/(sd + epsilon) for the best: (1 - p)^(G-1)/(sd of one success + epsilon).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.best_slope([0.1, 0.5], 8, ddof=1, epsilon=0.0).round(3).tolist()
    [1.353, 0.022]
    """
    group_size, ddof, epsilon = _settings(group_size, ddof, epsilon)
    p = _interior(p)
    deviation = np.sqrt((group_size - 1.0) / (group_size * (group_size - ddof)))
    return np.asarray(np.exp((group_size - 1) * np.log1p(-p)) / (deviation + epsilon))


def mixed_share(p: ArrayLike, group_size: int) -> Array:
    """Return P(a group has both successes and failures) = 1 - (1 - p)^G - p^G, of the shape of p.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.mixed_share([0.01, 0.1, 0.5], 8).round(3).tolist()
    [0.077, 0.57, 0.992]
    """
    group_size = as_count("group_size", group_size, 1)
    p = _probabilities(p)
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(-np.expm1(group_size * np.log1p(-p)) - p**group_size)


def mixed_bias(p: ArrayLike, group_size: int) -> Array:
    """Return E[group mean | mixed group] - p = [p(1-p)^G + p^(G+1) - p^G]/[1 - (1-p)^G - p^G] (R3; arXiv 2601.08521).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.mixed_bias([0.1, 0.5, 0.9], 8).round(3).tolist()  # towards a half
    [0.076, 0.0, -0.076]
    """
    group_size = as_count("group_size", group_size, 2)
    p = _interior(p)
    return np.asarray((p * (1.0 - p) ** group_size + p ** (group_size + 1) - p**group_size) / mixed_share(p, group_size))


def _settings(group_size: int, ddof: float, epsilon: float) -> tuple[int, float, float]:
    """Return the group size, at least 2, what a variance's divisor lacks to it, in [0, 1], and what is added to its root."""
    group_size, ddof, epsilon = (
        as_count("group_size", group_size, 2),
        as_number("ddof", ddof),
        as_not_negative("epsilon", epsilon),
    )
    if not 0.0 <= ddof <= 1.0:
        raise ValueError(f"ddof must lie in [0, 1], got {ddof}")
    return group_size, ddof, epsilon


def _binomial(counts: Integers, n: int, p: Array) -> Array:
    """Return the probabilities of counts (S,) of n, shape (..., S), for success probabilities p of any shape."""
    from scipy.stats import binom  # slow to import, and seldom wanted

    return np.asarray(binom.pmf(counts, n, p[..., None]))


def _probabilities(p: ArrayLike) -> Array:
    p = as_numbers("p", p)
    check_finite("p", p)
    if ((p < 0.0) | (p > 1.0)).any():
        raise ValueError(f"p must be probabilities, got {p.min():g} to {p.max():g}")
    return p


def _interior(p: ArrayLike) -> Array:
    p = _probabilities(p)
    if ((p == 0.0) | (p == 1.0)).any():
        raise ValueError("p must lie strictly between 0 and 1: the closed form divides by it")
    return p
