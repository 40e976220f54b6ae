"""The law of a weighted sum of independent chi-squares with one degree of freedom."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtr, chdtrc, chdtri, gammaincinv, gammaln, logit

from grpo_theory.arrays import Array, Number
from grpo_theory.theory.contour import Tails, log_volume, smallest, tails
from grpo_theory.theory.distance import LawDistance, law_distance
from grpo_theory.validation import as_count, as_generator, as_numbers, as_real_array

if TYPE_CHECKING:
    import pandas as pd

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
    Tails and densities are integrals along contours through saddlepoints (`grpo_theory.theory.contour`), accurate to about twelve
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

    def to_frame(self, p: ArrayLike = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)) -> "pd.DataFrame":
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
        near = np.exp((np.log(p) - log_volume(units, counts)) * 2.0 / degrees)
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
            step = gap * upper * (lower / np.maximum(laws.density, _LEAST)) / q[moving]
        moved = q[moving] * np.exp(np.clip(step, -np.log(8.0), np.log(8.0)))
        settled = np.abs(moved - q[moving]) <= 1e-14 * moved
        q[moving] = moved
        moving = moving[~settled]
    return q
