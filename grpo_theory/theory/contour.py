"""Tails and density of weighted sums of chi-squares, many at once, by integrals along contours through saddlepoints.

With K(t) = -(1/2) sum log(1 - 2 w_k t) for Q = sum_k w_k chi^2_1(k), and 0 < c < 1/(2 max w),

    P(Q > q) = (1/(2 pi i)) int_{c - i inf}^{c + i inf} exp(K(t) - t q) / t dt,

and for c < 0 the same integral is -P(Q <= q) (Helstrom 1983; Lugannani and Rice 1980).  Along a path through its saddlepoint, the
integrand is as large as the answer and no larger, so that both tails have full relative accuracy.  The path is bent to a parabola
to the right, where exp(-t q) falls.  The integral is taken by the trapezoidal rule in a variable whose hyperbolic sine is the
distance from the saddlepoint.  The error of this rule falls geometrically with the number of nodes.
"""

from math import atan2, cos, exp, expm1, log, pi, sin, sqrt
from typing import NamedTuple

import numba
import numpy as np
from scipy.special import gammaln

from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, F2, function_value, stage

NODES = 384
REACH = 8.5
BISECTIONS = 60
FAINT = -100.0
"""The logarithm of an integrand that is left out, relative to the saddlepoint's."""
SINH, COSH = np.sinh(np.linspace(0.0, REACH, NODES)), np.cosh(np.linspace(0.0, REACH, NODES))
NEGLIGIBLE = 1e-17
"""Points below this share of the smallest weight have the leading term of their tail to the last digit."""

LOST = -1000.0
"""Logarithms below it are those of no number: there the saddlepoint comes too near to the end of the line to be told from it."""


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
    laws = _near_zero(weights, counts, q)
    beyond = _log_upper(counts, q) < LOST
    between = np.flatnonzero((q > NEGLIGIBLE * smallest(weights)) & ~beyond)
    if len(between):
        arrays = [np.ascontiguousarray(array[between], dtype=np.float64) for array in (weights, counts, q)]
        values = Tails(*(np.empty(len(between)) for _ in Tails._fields))
        integrate(*arrays, *values)
        for out, part in zip(laws, values, strict=True):
            out[between] = part
    for out, limit in zip(laws, Tails(1.0, 0.0, 0.0), strict=True):  # type: ignore[arg-type]
        out[beyond] = limit
    return laws


def _log_upper(counts: Array, q: Array) -> Array:
    """Return a bound of log P(Q > q), Chernoff's for as many chi-squares of weight 1, shape (P,)."""
    degrees = counts.sum(axis=1)
    ratio = np.maximum(q / degrees, 1.0)
    return degrees / 2.0 * (1.0 + np.log(ratio) - ratio)


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


@stage
def left_root(weights, counts, q):
    """Return T with sum w/(1 + 2 w T) + 1/T = q, for q below the mean; it lies between 1/q and (n/2 + 1)/q."""
    # The logarithm is halved, because roots lie many powers of ten apart.
    low, high = -log(q), log(counts.sum() / 2.0 + 1.0) - log(q)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        t = exp(middle)
        slope = 1.0 / t
        for k in range(weights.shape[0]):
            slope += counts[k] * weights[k] / (1.0 + 2.0 * weights[k] * t)
        if slope > q:
            low = middle
        else:
            high = middle
    return exp((low + high) / 2.0)


@stage
def right_root(weights, counts, q):
    """Return t = (1 - s)/2 with sum w/(1 - 2 w t) - 1/t = q, in (0, 1/2); s lies between 1/(q + 4) and 1."""
    low, high = -log(q + 4.0), 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        s = exp(middle)
        slope = 2.0 / expm1(middle)
        for k in range(weights.shape[0]):
            slope += counts[k] * weights[k] / (1.0 - weights[k] + weights[k] * s)
        if slope > q:
            low = middle
        else:
            high = middle
    return -expm1((low + high) / 2.0) / 2.0


@function_value(numba.void(F2, F2, F1, F1, F1, F1))
def integrate(weights, counts, q, lower, upper, density):
    """Fill tails and density of each law, everything in units of the distance of the saddlepoint from the pole at 0."""
    ratios = np.empty(weights.shape[1])
    for law in range(weights.shape[0]):
        mean = 0.0
        for k in range(weights.shape[1]):
            mean += counts[law, k] * weights[law, k]
        left = q[law] < mean
        sign = -1.0 if left else 1.0
        distance = left_root(weights[law], counts[law], q[law]) if left else right_root(weights[law], counts[law], q[law])
        second, third, peak = 1.0, -2.0 * sign, -sign * distance * q[law]
        for k in range(weights.shape[1]):
            factor = 1.0 - 2.0 * weights[law, k] * sign * distance
            ratios[k] = weights[law, k] * distance / factor
            second += 2.0 * counts[law, k] * ratios[k] ** 2
            third += 8.0 * counts[law, k] * ratios[k] ** 3
            peak -= 0.5 * counts[law, k] * log(factor)
        scale = 1.0 / sqrt(second)
        # Straighter than steepest descent, which is that of the large weights: the branch points of the small ones lie beyond.
        bend = max(third / (20.0 * second), 0.03 / scale)
        height, tail = 0.0, 0.0
        for node in range(NODES):
            y = scale * SINH[node]
            x = bend * y * y
            size, angle = -x * distance * q[law], -y * distance * q[law]
            for k in range(weights.shape[1]):
                if counts[law, k] > 0.0:
                    real, imaginary = 1.0 - 2.0 * ratios[k] * x, -2.0 * ratios[k] * y
                    size -= 0.25 * counts[law, k] * log(real * real + imaginary * imaginary)
                    angle -= 0.5 * counts[law, k] * atan2(imaginary, real)
            if size < FAINT:
                break
            size = exp(size) * scale * COSH[node] * (0.5 if node == 0 else 1.0)
            # The integrand is multiplied by the derivative of the contour, 1 - 2 i bend y.
            real = size * (cos(angle) + 2.0 * bend * y * sin(angle))
            imaginary = size * (sin(angle) - 2.0 * bend * y * cos(angle))
            height += real
            tail += (real * (sign + x) + imaginary * y) / ((sign + x) ** 2 + y * y)
        unit = exp(peak) * REACH / ((NODES - 1.0) * pi)
        tail *= unit
        density[law] = unit * distance * height
        lower[law] = -tail if left else 1.0 - tail
        upper[law] = 1.0 + tail if left else tail
