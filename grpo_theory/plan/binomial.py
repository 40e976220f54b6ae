"""Binomial probabilities on a grid of success rates, and polynomials in Bernstein's form."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh_tridiagonal
from scipy.special import betaln, gammaln, xlog1py, xlogy

from grpo_theory.arrays import Array

ANGLES = 1024
"""Steps of the grid from 0 to 1: equal in the angle whose squared sine is the rate, so equal in standard errors of a rate."""


@lru_cache(maxsize=8)
def rate_grid(fineness: int, angles: int = ANGLES) -> Array:
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


def beta_quadrature(a: float, b: float, nodes: int) -> tuple[Array, Array]:
    """Return points in [0, 1] and weights, shape (nodes,) each, that average polynomials of degree below 2 nodes over beta(a, b).

    They are the eigenvalues of the Jacobi polynomials' recurrence, and the squares of its eigenvectors' first entries (Golub and
    Welsch 1969): no integral is computed, which for precise laws would overflow.
    """
    n, precision = np.arange(1.0, nodes), a + b
    even = precision + 2.0 * n - 2.0
    centres = np.append(0.5 + 0.5 * (a - b) / precision, 0.5 + 0.5 * (a - b) * (precision - 2.0) / (even * (even + 2.0)))
    m = n[1:]
    later = m * (m + a - 1.0) * (m + b - 1.0) * (m + precision - 2.0) / (even[1:] - 1.0)
    squares = np.append(a * b, later) / (even**2 * (even + 1.0))
    points, vectors = eigh_tridiagonal(centres, np.sqrt(squares))
    return np.clip(points, 0.0, 1.0), vectors[0] ** 2


def elevated(coefficients: Array, size: int) -> Array:
    """Return the Bernstein coefficients, of a degree `size` at least its own, of the same polynomial, shape (size + 1,).

    They are its unbiased estimate from k successes of `size` responses: the mean of the coefficients over the successes of so
    many responses as the degree, drawn from these without replacement.
    """
    degree = coefficients.size - 1
    k, j = np.arange(size + 1)[:, None], np.arange(degree + 1)
    with np.errstate(under="ignore"):
        chances = np.exp(log_choose(k, j) + log_choose(size - k, degree - j) - log_choose(size, degree))
    return np.asarray(chances @ coefficients)
