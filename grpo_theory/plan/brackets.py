"""Binomial probabilities, and polynomials just above and just below a function of the success rate.

From k successes of n responses, exactly the polynomials of degree at most n in the success rate p have unbiased estimates. For
any other function f, the mean over prompts E f(p) lies between the means of a polynomial above f and one below. This holds
whatever the law of p. The two are chosen by linear programming for tight limits (docs/derivations.md, section 34). A poor
choice costs width and never validity. Polynomials have Bernstein's form, whose terms are binomial probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.special import betaln, gammaln, xlog1py, xlogy

from grpo_theory.validation import Array

GRID_ANGLES = 1024
"""Steps of the grid from 0 to 1, equal in the angle whose squared sine is the rate: equal in standard errors of a rate."""
LADDER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48)
"""Degrees at which polynomials are searched; from larger groups the polynomial of the next degree below is estimated."""
ANGLES = 96
"""Steps of the grid on which a polynomial is kept above or below; a grid `FINENESS` times as fine then corrects it."""
FINENESS = 64
DEVIATIONS = 2.0
"""Standard errors that a choice of polynomials has in mind."""
FLATTEST, STEEPEST = 2.0**-6, 2.0**6
"""Bounds of the reference law's parameter."""


@lru_cache(maxsize=8)
def rate_grid(fineness: int, angles: int = GRID_ANGLES) -> Array:
    """Return success rates from 0 to 1, ascending: steps of equal angle, times the fineness, and the hundredths."""
    steps = np.linspace(0.0, np.pi / 2.0, fineness * angles + 1)
    grid = np.unique(np.concatenate([np.sin(steps) ** 2, np.linspace(0.0, 1.0, 101)]))
    grid.flags.writeable = False
    return grid


def log_choose(n: ArrayLike, k: ArrayLike) -> Array:
    """Return log C(n, k), -inf where k is below 0 or above n."""
    n, k = np.asarray(n, dtype=np.float64), np.asarray(k, dtype=np.float64)
    possible = (k >= 0.0) & (k <= n)
    k = np.where(possible, k, 0.0)
    return np.where(possible, gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0), -np.inf)


def binomial_table(successes: ArrayLike, sizes: ArrayLike, rates: ArrayLike, less: ArrayLike | None = None) -> Array:
    """Return P(successes of size) at each rate, shape (C, M); if given, exp(less) stands for 1/C(size, successes)."""
    k, n, p = np.asarray(successes)[:, None], np.asarray(sizes)[:, None], np.asarray(rates)
    logs = xlogy(k, p) + xlog1py(n - k, -p)
    logs += log_choose(n, k) if less is None else -np.asarray(less)[:, None]
    with np.errstate(under="ignore"):
        return np.exp(logs)


def bernstein(degree: int, rates: ArrayLike) -> Array:
    """Return the Bernstein polynomials of a degree, P(k successes of it), shape (M, degree + 1)."""
    return binomial_table(np.arange(degree + 1), np.full(degree + 1, degree), rates).T


def beta_binomial(size: int, a: float, b: float) -> Array:
    """Return the probabilities of 0..size successes whose rate has the law beta(a, b)."""
    k = np.arange(size + 1)
    return np.asarray(np.exp(log_choose(size, k) + betaln(a + k, b + size - k) - betaln(a, b)))


def elevated(coefficients: Array, size: int) -> Array:
    """Return the Bernstein coefficients, of a degree `size` at least its own, of the same polynomial, shape (size + 1,).

    The k-th is the polynomial's unbiased estimate from k successes of `size` responses. It averages the coefficients over the
    successes in a draw, without replacement, of as many of these responses as the degree.
    """
    degree = coefficients.size - 1
    k, j = np.arange(size + 1)[:, None], np.arange(degree + 1)
    with np.errstate(under="ignore"):
        chances = np.exp(log_choose(k, j) + log_choose(size - k, degree - j) - log_choose(size, degree))
    return np.asarray(chances @ coefficients)


@dataclass(frozen=True)
class RateFunction:
    """A function f >= 0 of the success rate on a part of [0, 1], and 0 outside.

    Attributes
    ----------
    function : callable
        Takes and returns an array; continuous.
    key : hashable
        Tells it from all others.
    coefficients : tuple of float, default ()
        Of Bernstein's form, if it is a polynomial.
    low, high : float
        The ends of the part; the polynomials hold whether the ends count as inside or not.
    """

    function: Callable[[Array], Array]
    key: object
    coefficients: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 1.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateFunction) and (self.key, self.low, self.high) == (other.key, other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.key, self.low, self.high))

    @property
    def whole(self) -> bool:
        """Whether the part is all of [0, 1]."""
        return self.low <= 0.0 and self.high >= 1.0

    def values(self, rates: Array, above: bool) -> Array:
        """Return the function, and at an end of its part the larger of its two values if `above`, or else the smaller."""
        if above:
            inside = (rates >= self.low) & (rates <= self.high)
        else:
            inside = ((rates > self.low) | (self.low <= 0.0)) & ((rates < self.high) | (self.high >= 1.0))
        return np.where(inside, self.function(rates), 0.0)


def power_of_two(number: float) -> float:
    """Return the nearest power of two, in ratio: what chooses polynomials is rounded, so that the choice hardly sees the data."""
    return float(2.0 ** np.round(np.log2(number)))


def reference_parameter(pair_share: float) -> float:
    """Return a for which two responses agree as often as stated if success rates have the law beta(a, a), a power of two."""
    agree = min(max(pair_share, 0.5), 1.0)
    a = (1.0 - agree) / (2.0 * agree - 1.0) if agree > 0.5 else STEEPEST
    return power_of_two(min(max(a, FLATTEST), STEEPEST))


def degree_for(size: int) -> int:
    """Return the degree at which the polynomials for groups of a size are searched."""
    return max(degree for degree in LADDER if degree <= size)


def bracket(function: RateFunction, size: int, a: float, b: float, prompts: float) -> tuple[Array, Array]:
    """Return Bernstein coefficients of degree `size` of polynomials below and above a function, shape (size + 1,) each.

    Parameters
    ----------
    function : RateFunction
    size : int
        The number of responses whose successes are counted.
    a, b : float
        The polynomials are chosen for success rates of the law beta(a, b).
    prompts : float
        And for a mean over so many prompts.
    """
    if function.whole and 0 < len(function.coefficients) <= size + 1:
        exact = elevated(np.array(function.coefficients), size)
        return exact, exact
    below, above = (_one_sided(function, degree_for(size), a, b, prompts, side) for side in (False, True))
    return elevated(below, size), elevated(above, size)


@lru_cache(maxsize=4096)
def _one_sided(function: RateFunction, degree: int, a: float, b: float, prompts: float, above: bool) -> Array:
    """Return the polynomial of a degree that is nowhere below the function, or nowhere above it.

    It minimises its mean plus a penalty, or maximises its mean less the penalty. This stands for the standard error: the sum
    over the counts k of sqrt(P(k)) |c_k| is at least the root mean square of c_k.
    """
    sign = 1.0 if above else -1.0
    rates = np.union1d(rate_grid(1, ANGLES), (function.low, function.high))
    chances = beta_binomial(degree, a, b)
    penalty = DEVIATIONS / np.sqrt(prompts) * np.sqrt(chances)
    cost = np.concatenate([penalty + sign * chances, penalty - sign * chances])
    basis = bernstein(degree, rates)
    wanted = function.values(rates, above)
    size = max(float(np.abs(wanted).max()), 1e-300)
    solution = linprog(cost, -sign * np.hstack([basis, -basis]), -sign * wanted / size, bounds=(0.0, None), method="highs")
    if solution.x is None:
        extreme = wanted.max() if above else wanted.min()
        return np.full(degree + 1, float(extreme))
    coefficients = size * (solution.x[: degree + 1] - solution.x[degree + 1 :])
    fine = np.union1d(rate_grid(FINENESS, ANGLES), (function.low, function.high))
    gap = sign * (function.values(fine, above) - bernstein(degree, fine) @ coefficients)
    return np.asarray(coefficients + sign * max(float(gap.max()), 0.0))
