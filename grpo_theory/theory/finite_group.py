"""Which objective an estimator climbs with groups of finite size, if rewards are binary (R1; docs/derivations.md, section 24).

The kernel reads only rewards, treats responses alike and sees its group alone. At a prompt with success probability p, its mean
update is h'(p) grad p, with h' a polynomial. The update climbs E[h(p(X))].
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, expit, logit

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.multisets import advantages_beside, binomial_law
from grpo_theory.validation import Array, as_count, as_not_negative, as_number, as_numbers, as_real_array, check_finite

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
        # h'(p) = sum_K C(G - 1, K) p^K (1 - p)^(G - 1 - K) c_K (docs/derivations.md, section 24).
        return np.asarray(binomial_law(np.arange(size), size - 1, p) @ self.coefficients)

    def value(self, p: ArrayLike) -> Array:
        """Return h(p) with h(0) = 0, of the shape of p; binomial probabilities integrate to incomplete beta functions over G."""
        p = _probabilities(p)
        others = np.arange(self.group_size)
        # h(p) = (1/G) sum_K c_K I_p(K + 1, G - K) (docs/derivations.md, section 24).
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
    others, advantages = advantages_beside(estimator, (float(values[0]), float(values[1])), group_size, group_size - 1)
    # With j successes among the others: A of a success less A of a failure; E of it over j is h'(p).
    return FiniteGroupObjective((advantages[:, 1] - advantages[:, 0])[np.argsort(others[:, 1])])


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
    p = interior("p", p)
    successes = np.arange(1, group_size)
    share = successes / group_size
    # s(f)^2 = G/(G - ddof) f (1 - f) (docs/derivations.md, section 24).
    deviation = np.sqrt(group_size / (group_size - ddof) * share * (1.0 - share))
    weights = binomial_law(successes, group_size, p)
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
    p, others = interior("p", p), group_size - 1
    successes = np.arange(group_size)
    share = successes / others
    # c_K = [(1 - f) - (0 - f)]/(s + epsilon) = 1/(s + epsilon), and 1 where s = 0, of the others' mean f and deviation s.
    correction = others / (others - ddof) if others > ddof else 0.0
    deviation = np.sqrt(correction * share * (1.0 - share))
    # Both branches of "where" are computed: the 1 that is added to a deviation of 0 keeps the one that is not used finite.
    factors = np.where(deviation > 0.0, 1.0 / (deviation + epsilon + (deviation == 0.0)), 1.0)
    return np.asarray(binomial_law(successes, others, p) @ factors)


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
    p = interior("p", p)
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
    p = interior("p", p)
    # c_0 = 1/(s(1/G) + epsilon) and c_K = 0 for K > 0, with s(1/G)^2 = G/(G - ddof) (1/G)(1 - 1/G)
    # (docs/derivations.md, section 24).
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
    p = interior("p", p)
    # E[f | mixed] = (p - p^G)/P(mixed), as f = 1 on a group of successes (docs/derivations.md, section 24.1).
    return np.asarray((p * (1.0 - p) ** group_size + p ** (group_size + 1) - p**group_size) / mixed_share(p, group_size))


def _settings(group_size: int, ddof: float, epsilon: float) -> tuple[int, float, float]:
    """Return the group size, at least 2, what a variance's divisor lacks to it, in [0, 1], and what is added to its root."""
    ddof = as_number("ddof", ddof)
    if not 0.0 <= ddof <= 1.0:
        raise ValueError(f"ddof must lie in [0, 1], got {ddof}")
    return as_count("group_size", group_size, 2), ddof, as_not_negative("epsilon", epsilon)


def _probabilities(p: ArrayLike) -> Array:
    p = as_numbers("p", p)
    check_finite("p", p)
    if ((p < 0.0) | (p > 1.0)).any():
        raise ValueError(f"p must be probabilities, got {p.min():g} to {p.max():g}")
    return p


_NEWTON = 64
"""More than Newton's method ever needs here: it converges from one side, and quadratically."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
"""Of a panel of the quadrature, which is at most one unit of log odds wide: the integrand is analytic within pi of it."""


@dataclass(frozen=True)
class SuccessFlow(ABC):
    """The growth of a success probability in continuous time: n updates with step eta take the time n eta.

    Attributes
    ----------
    answers : int, default 2
        K, at least 2.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> flow = gt.theory.PlainFlow(answers=2)
    >>> time = flow.time(0.1, 0.5)
    >>> round(float(flow.success(0.1, time)), 6), round(float(flow.log_odds(flow.clock(0.7))), 6)
    (0.5, 0.7)
    """

    answers: int = 2

    def __post_init__(self) -> None:
        if as_count("answers", self.answers) < 2:
            raise ValueError(f"answers must be at least 2, got {self.answers}")

    @property
    def speed(self) -> float:
        """The factor k = K/(K - 1): ||grad p||^2 = k (p(1 - p))^2."""
        return self.answers / (self.answers - 1.0)

    def time(self, start: ArrayLike, level: ArrayLike) -> Array:
        """Return the time from one success probability to another, negative if the level is below the start.

        Parameters
        ----------
        start, level : array_like
            In (0, 1); their shapes broadcast.
        """
        start, level = interior("start", start), interior("level", level)
        # du/dt = k V w(p), V = p (1 - p), so k dt = du/(w V) (docs/derivations.md, section 31.2).
        return np.asarray((self.clock(logit(level)) - self.clock(logit(start))) / self.speed)

    def success(self, start: ArrayLike, time: ArrayLike) -> Array:
        """Return the success probability at some time after the start.

        Parameters
        ----------
        start : array_like
            In (0, 1).
        time : array_like
            In units of 1/eta updates; its shape and that of `start` broadcast.
        """
        start, time = interior("start", start), as_real_array("time", time, np.ndim(time))
        return np.asarray(expit(self.log_odds(self.clock(logit(start)) + self.speed * time)))

    @abstractmethod
    def clock(self, log_odds: ArrayLike) -> Array:
        """Return the integral of du/(w(p) p(1 - p)) from 0 to the log odds: k times the time from success 1/2."""

    @abstractmethod
    def log_odds(self, clock: ArrayLike) -> Array:
        """Return the log odds at which the clock shows a value: the inverse of `clock`."""


class PlainFlow(SuccessFlow):
    """Without division: w = 1, 2(u + sinh u) = k t + const.

    The time to success 1/2 is [1/p + 2 log(1/p) + O(1)]/k from small p, and in the end 1 - p falls as 1/(k t).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> flow = gt.theory.PlainFlow()
    >>> round(float(flow.time(0.01, 0.5)), 1), round(float(flow.log_odds(flow.clock(0.7))), 6)
    (54.1, 0.7)
    """

    def clock(self, log_odds: ArrayLike) -> Array:
        """Return 2(u + sinh u)."""
        u = as_numbers("log_odds", log_odds)
        # 1/V = 2 (1 + cosh u), whose integral is 2 (u + sinh u) (docs/derivations.md, section 31.2).
        return 2.0 * (u + np.sinh(u))

    def log_odds(self, clock: ArrayLike) -> Array:
        """Solve u + sinh u = clock/2 by Newton's method from above, where the left side is convex: no iterate overshoots."""
        height = np.abs(as_numbers("clock", clock)) / 2.0
        u = np.minimum(np.arcsinh(height), height / 2.0)
        for _ in range(_NEWTON):
            step = (u + np.sinh(u) - height) / (1.0 + np.cosh(u))
            u = u - step
            if (np.abs(step) <= 1e-15 * u).all():
                break
        return np.asarray(np.copysign(u, clock))


class DividedFlow(SuccessFlow):
    """With division by the true standard deviation: w = 1/sqrt(p(1 - p)), 4 sinh(u/2) = k t + const.

    The time to success 1/2 is (2/k) (1 - 2p)/sqrt(p(1 - p)), and in the end 1 - p falls as 4/(k t)^2.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> flow = gt.theory.DividedFlow()
    >>> round(float(flow.time(0.01, 0.5)), 1), round(float(flow.log_odds(flow.clock(0.7))), 6)
    (9.8, 0.7)
    """

    def clock(self, log_odds: ArrayLike) -> Array:
        """Return 4 sinh(u/2)."""
        # 1/sqrt(V) = 2 cosh(u/2), whose integral is 4 sinh(u/2) (docs/derivations.md, section 31.2).
        return np.asarray(4.0 * np.sinh(as_numbers("log_odds", log_odds) / 2.0))

    def log_odds(self, clock: ArrayLike) -> Array:
        """Return 2 arcsinh(clock/4)."""
        return np.asarray(2.0 * np.arcsinh(as_numbers("clock", clock) / 4.0))


@dataclass(frozen=True, kw_only=True)
class FiniteGroupFlow(SuccessFlow):
    """With the deviation of a group of G responses, or any other kernel: w = h'(p), from its Bernstein polynomial.

    Where h' is bounded, below p of about 1/G, the flow is the plain one made h'(0) times faster.  The time is a quadrature, to
    about 1e-13 of itself.

    Attributes
    ----------
    answers : int, default 2
    objective : FiniteGroupObjective
        The objective from `finite_group_objective`; its slope must be positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> objective = gt.theory.finite_group_objective("grpo", 8)
    >>> flow = gt.theory.FiniteGroupFlow(objective=objective)
    >>> round(float(flow.time(0.01, 0.5)), 1), round(float(flow.log_odds(flow.clock(0.7))), 6)
    (23.3, 0.7)
    """

    objective: FiniteGroupObjective

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective.slope_range[0] <= 0.0:
            raise ValueError(f"objective must rise at every p, got a slope of {self.objective.slope_range[0]:g}")

    @property
    def crossover(self) -> float:
        """1/(4 h'(0)^2), where the times of escape 1/(k h'(0) p) and 2/(k sqrt(p)) are equal: G/(4(G - 1)^2) for GRPO."""
        return float(0.25 / self.objective.slope(0.0) ** 2)

    def clock(self, log_odds: ArrayLike) -> Array:
        """Return the integral of du/(h'(p) p(1 - p)) from 0, by Gauss and Legendre's rule on panels."""
        u = as_numbers("log_odds", log_odds)
        return np.array([self._integral(float(end)) for end in u.flat]).reshape(u.shape)

    def _integral(self, end: float) -> float:
        edges = np.linspace(0.0, end, 1 + max(1, int(np.ceil(abs(end)))))
        half = np.diff(edges)[:, None] / 2.0
        u = edges[:-1, None] + half * (1.0 + _NODES)
        p = expit(u)
        return float((half * _WEIGHTS / (self.objective.slope(p) * p * expit(-u))).sum())

    def log_odds(self, clock: ArrayLike) -> Array:
        """Invert the clock between those of the plain flows made as fast as the least and the greatest h'."""
        from scipy.optimize import brentq  # slow to import, and seldom wanted

        clocks = as_numbers("clock", clock)
        # least <= h' <= most, so least |clock(u)| <= |plain clock(u)| <= most |clock(u)|, and all have the sign of u.
        least, most = self.objective.slope_range
        low, high = np.sort(PlainFlow().log_odds(np.multiply.outer([0.999 * least, 1.001 * most], clocks.ravel())), axis=0)
        for i in np.flatnonzero(low < high).tolist():
            value = float(clocks.flat[i])
            low[i] = brentq(lambda u, value=value: self._integral(u) - value, low[i], high[i], xtol=1e-14, rtol=1e-14)
        return np.asarray(low.reshape(clocks.shape))


def interior(name: str, value: ArrayLike) -> Array:
    """Return probabilities as float64; raise unless all lie strictly between 0 and 1."""
    numbers = as_numbers(name, value)
    p = as_real_array(name, numbers, numbers.ndim)
    if ((p <= 0.0) | (p >= 1.0)).any():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {p.min():g} to {p.max():g}")
    return p
