"""Tails and density of weighted sums of chi-squares, many at once, by integrals along contours through saddlepoints.

With K(t) = -(1/2) sum log(1 - 2 w_k t) for Q = sum_k w_k chi^2_1(k), and 0 < c < 1/(2 max w),

    P(Q > q) = (1/(2 pi i)) int_{c - i inf}^{c + i inf} exp(K(t) - t q) / t dt,

and for c < 0 the same integral is -P(Q <= q) (Helstrom 1983; Lugannani and Rice 1980).  Through the saddlepoint of the integrand
it is as large as the answer and no larger, so that both tails have full relative accuracy.  The path is bent to a parabola to
the right, where exp(-t q) falls, and the integral is taken by the trapezoidal rule in a variable whose hyperbolic sine is the
distance from the saddlepoint: its error falls geometrically with the number of nodes.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from grpo_theory.arrays import Array

NODES = 384
REACH = 8.5
BISECTIONS = 60
NEGLIGIBLE = 1e-17
"""Points below this share of the smallest weight have the leading term of their tail to the last digit."""
CHUNK = 1 << 22
"""Complex numbers that are held at once."""


class Tails(NamedTuple):
    """P(Q <= q), P(Q > q) and the density at q, shape (P,) each; the smaller of the tails is the accurate one."""

    lower: Array
    upper: Array
    density: Array


def tails(weights: Array, counts: Array, q: Array) -> Tails:
    """Return tails and density of P laws, each at one point.

    Parameters
    ----------
    weights : ndarray, shape (P, n)
        Not negative, the largest of each law 1.
    counts : ndarray, shape (P, n)
        How often each weight occurs; 0 for a weight of 0.
    q : ndarray, shape (P,)
        Finite and above 0.
    """
    found = _near_zero(weights, counts, q)
    far = np.flatnonzero(q > NEGLIGIBLE * smallest(weights))
    rows = max(1, CHUNK // (NODES * weights.shape[1]))
    for start in range(0, len(far), rows):
        part = far[start : start + rows]
        for out, values in zip(found, _contour(weights[part], counts[part], q[part]), strict=True):
            out[part] = values
    return found


def smallest(weights: Array) -> Array:
    """Return the smallest weight above 0 of each law, shape (P,)."""
    return np.where(weights > 0.0, weights, np.inf).min(axis=1)


def log_volume(weights: Array, counts: Array) -> Array:
    """Return log v with P(Q <= q) = v q^(n/2) {1 + O(q / smallest weight)}, shape (P,)."""
    half = counts.sum(axis=1) / 2.0
    logs = np.log(np.where(weights > 0.0, weights, 1.0))
    return -half * np.log(2.0) - gammaln(half + 1.0) - 0.5 * (counts * logs).sum(axis=1)


def _near_zero(weights: Array, counts: Array, q: Array) -> Tails:
    half = counts.sum(axis=1) / 2.0
    with np.errstate(over="ignore", under="ignore"):
        lower = np.exp(log_volume(weights, counts) + half * np.log(q))
        density = half * np.exp(log_volume(weights, counts) + (half - 1.0) * np.log(q))
    return Tails(lower, 1.0 - lower, density)


def _contour(weights: Array, counts: Array, q: Array) -> Tails:
    """Integrate along the contours, everything in units of the distance of the saddlepoint from the pole at 0."""
    left = q < (counts * weights).sum(axis=1)
    sign = np.where(left, -1.0, 1.0)
    distance = np.where(left, _left_root(weights, counts, q), _right_root(weights, counts, q))
    factors = 1.0 - 2.0 * weights * (sign * distance)[:, None]
    ratio = weights * distance[:, None] / factors
    second = 2.0 * (counts * ratio**2).sum(axis=1) + 1.0
    third = 8.0 * (counts * ratio**3).sum(axis=1) - 2.0 * sign
    scale = 1.0 / np.sqrt(second)
    # Straighter than steepest descent, which is that of the large weights: the branch points of the small ones lie beyond.
    bend = np.maximum(third / (20.0 * second), 0.03 / scale)
    v = np.linspace(0.0, REACH, NODES)
    offsets = scale[:, None] * np.sinh(v)
    step = 1j * offsets + bend[:, None] * offsets**2
    exponent = -step * (distance * q)[:, None]
    for k in range(weights.shape[1]):
        exponent -= 0.5 * counts[:, k, None] * np.log1p(-2.0 * ratio[:, k, None] * step)
    values = np.exp(exponent) * (1.0 - 2.0j * bend[:, None] * offsets) * scale[:, None] * np.cosh(v)
    rule = np.full(NODES, v[1] / np.pi)
    rule[0] /= 2.0
    with np.errstate(under="ignore"):
        peak = np.exp(-0.5 * (counts * np.log(factors)).sum(axis=1) - sign * distance * q)
    density = peak * distance * (values.real @ rule)
    tail = peak * ((values / (sign[:, None] + step)).real @ rule)
    return Tails(np.where(left, -tail, 1.0 - tail), np.where(left, 1.0 + tail, tail), density)


def _left_root(weights: Array, counts: Array, q: Array) -> Array:
    """Return T with sum w/(1 + 2 w T) + 1/T = q, for q below the mean; it lies between 1/q and (n/2 + 1)/q."""
    low, high = -np.log(q), np.log(counts.sum(axis=1) / 2.0 + 1.0) - np.log(q)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        t = np.exp(middle)
        above = (counts * weights / (1.0 + 2.0 * weights * t[:, None])).sum(axis=1) + 1.0 / t > q
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp((low + high) / 2.0)


def _right_root(weights: Array, counts: Array, q: Array) -> Array:
    """Return t = (1 - s)/2 with sum w/(1 - 2 w t) - 1/t = q, in (0, 1/2); s lies between 1/(q + 4) and 1."""
    low, high = -np.log(q + 4.0), np.zeros_like(q)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        s = np.exp(middle)
        with np.errstate(divide="ignore"):
            slope = (counts * weights / (1.0 - weights + weights * s[:, None])).sum(axis=1) - 2.0 / -np.expm1(middle)
        above = slope > q
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return -np.expm1((low + high) / 2.0) / 2.0
