"""How the success probability of one prompt grows if steps are small (N7; docs/derivations.md, section 31).

A prompt has K tabular responses, one of them right, and wrong ones that are equally likely.  Along d theta/dt = w(p) grad p the
log odds u of success obey du/dt = k w(p) p(1 - p), with k = K/(K - 1).  Without division by the standard deviation w = 1.  With
division by the true deviation w = 1/sqrt(p(1 - p)), and by the deviation of a finite group w = h'(p).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from grpo_theory.arrays import Array
from grpo_theory.theory.finite_group import FiniteGroupObjective
from grpo_theory.validation import as_count, as_numbers, as_real_array, check_interior

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
        start, level = _interior("start", start), _interior("level", level)
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
        start, time = _interior("start", start), as_real_array("time", time, np.ndim(time))
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
        clocks = as_numbers("clock", clock)
        least, most = self.objective.slope_range
        ends = PlainFlow().log_odds(np.multiply.outer([0.999 * least, 1.001 * most], clocks.ravel()))
        log_odds = [self._inverse(float(value), *sorted(pair)) for value, pair in zip(clocks.flat, ends.T, strict=True)]
        return np.array(log_odds).reshape(clocks.shape)

    def _inverse(self, value: float, low: float, high: float) -> float:
        from scipy.optimize import brentq  # slow to import, and seldom wanted

        def gap(u: float) -> Any:
            return self._integral(u) - value

        return float(brentq(gap, low, high, xtol=1e-14, rtol=1e-14)) if low < high else low


def _interior(name: str, value: ArrayLike) -> Array:
    p = as_real_array(name, value, np.ndim(value))
    check_interior(name, p)
    return p
