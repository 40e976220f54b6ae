"""The law of a weighted sum of independent chi-squares with one degree of freedom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import atan2, cos, exp, expm1, log, pi, sin, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtr, chdtrc, chdtri, gammaincinv, gammaln, logit

from grpo_theory.jit import kernel
from grpo_theory.validation import Array, Number, as_count, as_fraction, as_generator, as_numbers, as_real_array

if TYPE_CHECKING:
    import pandas as pd


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
    half = counts.sum(axis=1) / 2.0
    with np.errstate(over="ignore", under="ignore"):
        # The leading term v q^(n/2) of the tail at 0, and its derivative.
        lower = np.exp(log_volume(weights, counts) + half * np.log(q))
        density = half * np.exp(log_volume(weights, counts) + (half - 1.0) * np.log(q))
    laws = Tails(lower, 1.0 - lower, density)
    # Chernoff's bound of log P(Q > q), for as many chi-squares of weight 1: n/2 (1 + log r - r) at r = q/n.
    ratio = np.maximum(q / (2.0 * half), 1.0)
    beyond = half * (1.0 + np.log(ratio) - ratio) < LOST
    between = np.flatnonzero((q > NEGLIGIBLE * smallest(weights)) & ~beyond)
    if len(between):
        arrays = [np.ascontiguousarray(array[between], dtype=np.float64) for array in (weights, counts, q)]
        values = Tails(*(np.empty(len(between)) for _ in Tails._fields))
        integrate(*arrays, *values)
        for out, part in zip(laws, values, strict=True):
            out[between] = part
    for out, limit in zip(laws, (1.0, 0.0, 0.0), strict=True):
        out[beyond] = limit
    return laws


def smallest(weights: Array) -> Array:
    """Return the smallest weight above 0 of each law, shape (P,)."""
    return np.where(weights > 0.0, weights, np.inf).min(axis=1)


def log_volume(weights: Array, counts: Array) -> Array:
    """Return log v with P(Q <= q) = v q^(n/2) {1 + O(q / smallest weight)}, shape (P,)."""
    half = counts.sum(axis=1) / 2.0
    # E exp(-s Q) is about prod_k (2 w_k s)^(-n_k/2) for large s, so v = prod_k (2 w_k)^(-n_k/2)/Gamma(n/2 + 1).
    logs = np.log(np.where(weights > 0.0, weights, 1.0))
    return -half * np.log(2.0) - gammaln(half + 1.0) - 0.5 * (counts * logs).sum(axis=1)


@kernel
def root(weights, counts, q, left):
    """Return the distance from 0 of the saddlepoint t of exp(K(t))/t, which solves K'(t) = 1/t, K(t) = log E exp(t Q) - t q.

    Below the mean, where `left`, it is T = -t with sum w/(1 + 2 w T) + 1/T = q.  T lies between 1/q and (n/2 + 1)/q.  Above the
    mean it is t = (1 - s)/2 with sum w/(1 - 2 w t) - 1/t = q.  There s lies between 1/(q + 4) and 1.
    """
    # The logarithm, of T or of s, is halved, because roots lie many powers of ten apart.
    low, high = (-log(q), log(counts.sum() / 2.0 + 1.0) - log(q)) if left else (-log(q + 4.0), 0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        s = exp(middle)
        # -1/t = 2/(s - 1) and 1 - 2 w t = 1 - w + w s, because t = (1 - s)/2.
        slope = 1.0 / s if left else 2.0 / expm1(middle)
        for k in range(weights.shape[0]):
            slope += counts[k] * weights[k] / (1.0 + 2.0 * weights[k] * s if left else 1.0 - weights[k] + weights[k] * s)
        if slope > q:
            low = middle
        else:
            high = middle
    middle = (low + high) / 2.0
    return exp(middle) if left else -expm1(middle) / 2.0


@kernel
def integrate(weights, counts, q, lower, upper, density):
    """Fill tails and density of each law, everything in units of the distance of the saddlepoint from the pole at 0."""
    ratios = np.empty(weights.shape[1])
    for law in range(weights.shape[0]):
        mean = 0.0
        for k in range(weights.shape[1]):
            mean += counts[law, k] * weights[law, k]
        left = q[law] < mean
        sign = -1.0 if left else 1.0
        distance = root(weights[law], counts[law], q[law], left)
        # K(t) = -sum n_k/2 log(1 - 2 w_k t) - t q at the saddlepoint, and its derivatives, in units of its distance from 0.
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
        # (1/(2 pi i)) int exp(K(t))/t dt is P(Q > q) right of the pole at 0, and -P(Q <= q) left of it.
        # Without 1/t it is the density. The contour is t = distance (sign + bend y^2 + i y).
        height, tail = 0.0, 0.0
        for node in range(NODES):
            y = scale * SINH[node]
            x = bend * y * y
            size, angle = -x * distance * q[law], -y * distance * q[law]
            for k in range(weights.shape[1]):
                if counts[law, k] > 0.0:
                    # (1 - 2 w t)/(1 - 2 w t_0) = 1 - 2 ratio (x + i y), t_0 the saddlepoint.
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


@dataclass(frozen=True)
class LawDistance:
    """The Kolmogorov distance of the law that a sample is drawn from to a given law, from the sample.

    Attributes
    ----------
    estimate : float
        The largest difference between the empirical distribution function and the law's.
    low, high : float
        Limits of the true distance, by the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990). They are
        valid for every sample size. If low is above 0, the law is refuted.
    level : float
        The confidence level of the limits.
    replications : int
        The size of the sample.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.WeightedChiSquare([1.0, 0.5])
    >>> found = law.compare(1.2 * law.rvs(4000, rng=0))  # draws from another law
    >>> found.low > 0.0
    True
    """

    estimate: float
    low: float
    high: float
    level: float
    replications: int


def law_distance(cdf: Callable[[Array], Array], values: ArrayLike, level: float = 0.95) -> LawDistance:
    """Measure the distance of a sample (R,) from the law with a continuous distribution function."""
    sample, level = np.sort(as_real_array("values", values, 1)), as_fraction("level", level)
    below = np.asarray(cdf(sample))
    steps = np.arange(sample.size + 1) / sample.size
    estimate = float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
    # P(distance > h) <= 2 exp(-2 R h^2) (Massart 1990).
    half = float(np.sqrt(np.log(2.0 / (1.0 - level)) / (2.0 * sample.size)))
    return LawDistance(estimate, max(0.0, estimate - half), min(1.0, estimate + half), level, sample.size)


_NEWTON_STEPS = 100
_LEAST = np.finfo(float).tiny
_LARGEST = 1e150
"""Above it the square of a weight is no number."""


class WeightedChiSquare:
    """Q = sum_k w_k chi^2_1(k), a frozen distribution in the manner of scipy.stats, or many of them.

    Parameters
    ----------
    weights : array_like, shape (..., n)
        Not negative, in each law at least one above 0.  With leading axes there are many laws, and every method takes and
        returns arrays that broadcast against these axes.

    Notes
    -----
    Tails and densities are integrals along contours through saddlepoints, accurate to about twelve
    digits, far out too.  Where all weights are equal the law is scipy's chi-square.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.WeightedChiSquare([1.0, 0.5])
    >>> law.mean(), law.var(), round(law.std(), 3), round(law.skewness(), 3)
    (np.float64(1.5), np.float64(2.5), np.float64(1.581), np.float64(2.277))
    >>> round(float(law.cdf(4.0)), 4), round(float(law.sf(4.0)), 4), round(float(law.pdf(4.0)), 4), round(float(law.ppf(0.95)), 3)
    (0.9269, 0.0731, 0.0446, 4.628)
    >>> draws = law.rvs(1000, rng=0)
    >>> law.compare(draws).low, law.to_frame([0.5, 0.95]).shape
    (0.0, (2, 3))
    """

    def __init__(self, weights: ArrayLike) -> None:
        weights = as_real_array("weights", weights, None)
        if weights.min() < 0.0:
            raise ValueError(f"weights must not be negative, got {weights.min():g}")
        if not (weights.max(axis=-1) > 0.0).all():
            raise ValueError("weights must have at least one above 0, got zeros only")
        if weights.max() > _LARGEST:
            raise ValueError(f"weights must be at most {_LARGEST:g}, got {weights.max():g}: give them in a larger unit")
        self.weights = np.sort(weights[weights > 0.0])[::-1] if weights.ndim == 1 else weights
        self.weights.setflags(write=False)

    def mean(self) -> Number:
        """Return E Q, the sum of the weights."""
        return self.weights.sum(axis=-1)[()]

    def var(self) -> Number:
        """Return Var Q, twice the sum of the squared weights."""
        return (2.0 * (self.weights**2).sum(axis=-1))[()]

    def std(self) -> Number:
        """Return the standard deviation of Q."""
        return np.sqrt(self.var())

    def skewness(self) -> Number:
        """Return the skewness of Q, sqrt(8) sum w^3 / (sum w^2)^(3/2)."""
        return (np.sqrt(8.0) * (self.weights**3).sum(axis=-1) / (self.weights**2).sum(axis=-1) ** 1.5)[()]

    def cdf(self, q: ArrayLike) -> Number:
        """Return P(Q <= q)."""
        return self._at(q, 0.0, 1.0, "lower")

    def sf(self, q: ArrayLike) -> Number:
        """Return P(Q > q)."""
        return self._at(q, 1.0, 0.0, "upper")

    def pdf(self, q: ArrayLike) -> Number:
        """Return the density at q; at 0 it is infinite for one weight, 1/(2 sqrt(w_1 w_2)) for two, 0 for more."""
        count = (self.weights > 0.0).sum(axis=-1)
        two = np.where((self.weights > 0.0) & (count == 2)[..., None], self.weights, 1.0)
        at_zero = np.select([count == 1, count == 2], [np.inf, 0.5 / np.sqrt(two).prod(axis=-1)], 0.0)
        density = self._at(q, 0.0, 0.0, "density") / self.weights.max(axis=-1)
        return np.where(as_numbers("q", q) == 0.0, at_zero, density)[()]

    def ppf(self, p: ArrayLike) -> Number:
        """Return the quantile: the q with P(Q <= q) = p, for p in [0, 1]."""
        p = as_numbers("p", p)
        if not ((p >= 0.0) & (p <= 1.0)).all():
            raise ValueError(f"p must lie in [0, 1], got {p}")
        shape = np.broadcast_shapes(p.shape, self.weights.shape[:-1])
        levels = np.broadcast_to(p, shape).reshape(-1)
        inside = (levels > 0.0) & (levels < 1.0)
        quantiles = np.where(levels <= 0.0, 0.0, np.inf)
        units, counts, scale = self._rows(shape)
        quantiles[inside] = scale[inside] * _quantiles(units[inside], counts[inside], levels[inside])
        return quantiles.reshape(shape)[()]

    def compare(self, values: ArrayLike, level: float = 0.95) -> LawDistance:
        """Return how far a sample (R,) is from this law, with limits of the true distance.

        Raises
        ------
        ValueError
            If a value is not finite, or there are many laws.
        """
        if self.weights.ndim > 1:
            raise ValueError(f"weights must be those of one law to compare a sample with it, got shape {self.weights.shape}")
        return law_distance(self.cdf, values, level)

    def to_frame(self, p: ArrayLike = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)) -> pd.DataFrame:
        """Return a DataFrame of quantiles with the columns law, p and quantile; laws are numbered in the order of the weights."""
        import pandas as pd  # slow to import, and not always wanted

        levels = as_real_array("p", p, 1)
        quantiles = np.stack([np.ravel(self.ppf(level)) for level in levels], axis=-1)
        laws, count = quantiles.shape
        columns = {"law": np.repeat(np.arange(laws), count), "p": np.tile(levels, laws), "quantile": quantiles.ravel()}
        return pd.DataFrame(columns)

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        *,
        rng: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> Number:
        """Draw from the law; of many laws, `size` draws of each, along leading axes."""
        generator = as_generator(rng)
        sizes = () if size is None else size if isinstance(size, tuple) else (size,)
        shape = tuple(as_count("size", one, 0) for one in sizes)
        total = np.zeros((*shape, *self.weights.shape[:-1]))
        for k in range(self.weights.shape[-1]):
            total += self.weights[..., k] * generator.chisquare(1.0, size=total.shape)
        return total[()]

    def __repr__(self) -> str:
        if self.weights.ndim > 1:
            return f"WeightedChiSquare(laws={self.weights.shape[:-1]}, n={self.weights.shape[-1]})"
        return f"{type(self).__name__}(n={self.weights.size}, mean={self.mean():.4g}, std={self.std():.4g})"

    def _rows(self, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """Return weights relative to the largest, how often each occurs, and the largest: a row for each number of a shape."""
        weights = self.weights
        counts = (weights > 0.0).astype(np.float64)
        if weights.ndim == 1:
            weights, repeats = np.unique(weights, return_counts=True)
            counts = repeats.astype(np.float64)
        scale = weights.max(axis=-1, keepdims=True)
        with np.errstate(under="ignore"):
            units = weights / scale
        counts = np.where(units > _LEAST, counts, 0.0)
        rows = (np.broadcast_to(part, (*shape, part.shape[-1])) for part in (units, counts, scale))
        units, repeated, largest = (part.reshape(-1, part.shape[-1]) for part in rows)
        return units, repeated, largest[:, 0]

    def _at(self, q: ArrayLike, below: float, above: float, name: str) -> Array:
        """Return tails or densities, in units of the largest weight; `below` and `above` are the values at 0 and at infinity."""
        q = as_numbers("q", q)
        if np.isnan(q).any():
            raise ValueError("q must not be NaN")
        shape = np.broadcast_shapes(q.shape, self.weights.shape[:-1])
        units, counts, scale = self._rows(shape)
        points = np.broadcast_to(q, shape).reshape(-1) / scale
        inside = (points > 0.0) & np.isfinite(points)
        values = np.where(points > 0.0, above, below)
        values[inside] = getattr(_evaluate(units[inside], counts[inside], points[inside]), name)
        return values.reshape(shape)[()]


def _evaluate(units: Array, counts: Array, q: Array) -> Tails:
    """Return tails and densities of P laws with largest weight 1; those with equal weights are scipy's."""
    degrees = counts.sum(axis=1)
    with np.errstate(over="ignore", under="ignore"):
        density = np.exp((degrees / 2.0 - 1.0) * np.log(q) - q / 2.0 - degrees / 2.0 * np.log(2.0) - gammaln(degrees / 2.0))
        laws = Tails(chdtr(degrees, q), chdtrc(degrees, q), density)
        unequal = ((units < 1.0) & (counts > 0.0)).any(axis=1)
        if unequal.any():
            for out, values in zip(laws, tails(units[unequal], counts[unequal], q[unequal]), strict=True):
                out[unequal] = values
    return laws


def _quantiles(units: Array, counts: Array, p: Array) -> Array:
    """Return the quantiles of P laws with largest weight 1, for p in (0, 1).

    Newton's method works on the logit of the distribution function.  The logit is nearly straight in log q for small q, and in q
    for large q.  The start is the gamma law with the same mean and variance (Satterthwaite 1946).
    """
    degrees, total, squares = counts.sum(axis=1), (counts * units).sum(axis=1), (counts * units**2).sum(axis=1)
    equal = ~((units < 1.0) & (counts > 0.0)).any(axis=1)
    with np.errstate(under="ignore"):
        # v q^(n/2) = p for small p.
        near = np.exp((np.log(p) - log_volume(units, counts)) * 2.0 / degrees)
        # Shape a = (sum w)^2/(2 sum w^2) and scale b = 2 sum w^2/sum w: a b = E Q and a b^2 = Var Q.
        gamma = 2.0 * squares / total * gammaincinv(total**2 / (2.0 * squares), p)
        chi = np.where(p < 0.5, 2.0 * gammaincinv(degrees / 2.0, p), chdtri(degrees, 1.0 - p))
    # No quantile is below `near`, because the density is nowhere above that of its leading term.
    q = np.where(equal, chi, np.where(near < 0.1 * smallest(units), near, np.maximum(near, gamma)))
    moving = np.flatnonzero(~equal & (q > _LEAST))
    for _ in range(_NEWTON_STEPS):
        if not moving.size:
            break
        laws = _evaluate(units[moving], counts[moving], q[moving])
        lower, upper = np.maximum(laws.lower, _LEAST), np.maximum(laws.upper, _LEAST)
        gap = logit(p[moving]) - np.log(lower) + np.log(upper)
        with np.errstate(over="ignore"):
            # d logit F/d log q = q f/(F (1 - F)), f the density.
            step = gap * upper * (lower / np.maximum(laws.density, _LEAST)) / q[moving]
        moved = q[moving] * np.exp(np.clip(step, -np.log(8.0), np.log(8.0)))
        settled = np.abs(moved - q[moving]) <= 1e-14 * moved
        q[moving] = moved
        moving = moving[~settled]
    return q
