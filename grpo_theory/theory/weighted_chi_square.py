"""The law of a weighted sum of independent chi-squares with one degree of freedom.

Both tails are computed with full relative accuracy by inverting the moment generating function along a path through a
saddlepoint (Helstrom 1983; Lugannani and Rice 1980): there the integrand is as large as the answer and no larger.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from grpo_theory.validation import as_real_array

Array = NDArray[np.float64]

_RELATIVE_ERROR = 1e-13
_UNDERFLOW = -750.0
_REFINEMENTS = 12


class WeightedChiSquare:
    """Q = sum_k w_k chi^2_1(k), a frozen distribution in the manner of scipy.stats.

    Parameters
    ----------
    weights : array_like, shape (n,)
        Not negative, at least one above 0; zeros are dropped.

    Notes
    -----
    With K(t) = -(1/2) sum log(1 - 2 w_k t), for 0 < c < 1/(2 max w),

        P(Q > q) = (1/(2 pi i)) int_{c - i inf}^{c + i inf} exp(K(t) - t q) / t dt,

    and for c < 0 the same integral is -P(Q <= q).  The path is bent to a parabola along the direction of steepest descent and
    the integral is taken by the trapezoidal rule, whose error falls geometrically; the number of nodes is doubled until two
    values agree to 1e-13.  Any parabola that opens to the right gives the same integral.
    """

    def __init__(self, weights: ArrayLike) -> None:
        weights = as_real_array("weights", weights, 1)
        if weights.min() < 0.0:
            raise ValueError(f"weights must not be negative, got {weights.min():g}")
        self.weights = np.sort(weights[weights > 0.0])[::-1]
        if self.weights.size == 0:
            raise ValueError("weights must have at least one above 0, got zeros only")
        self.weights.setflags(write=False)

    def mean(self) -> float:
        """Return E Q, the sum of the weights."""
        return float(self.weights.sum())

    def var(self) -> float:
        """Return Var Q, twice the sum of the squared weights."""
        return float(2.0 * (self.weights**2).sum())

    def std(self) -> float:
        """Return the standard deviation of Q."""
        return float(np.sqrt(self.var()))

    def skewness(self) -> float:
        """Return the skewness of Q, sqrt(8) sum w^3 / (sum w^2)^(3/2)."""
        return float(np.sqrt(8.0) * (self.weights**3).sum() / (self.weights**2).sum() ** 1.5)

    def cdf(self, q: ArrayLike) -> Array:
        """Return P(Q <= q)."""
        return self._each(lambda u: self._lower(u) if u < self._middle else 1.0 - self._upper(u), q, 0.0)

    def sf(self, q: ArrayLike) -> Array:
        """Return P(Q > q)."""
        return self._each(lambda u: self._upper(u) if u > self._middle else 1.0 - self._lower(u), q, 1.0)

    def pdf(self, q: ArrayLike) -> Array:
        """Return the density at q; at 0 it is infinite for one weight, 1/(2 sqrt(w_1 w_2)) for two, 0 for more."""
        at_zero = {1: np.inf, 2: 0.5 / np.sqrt(self._unit[0] * self._unit[-1])}.get(self._unit.size, 0.0)
        found = self._each(self._density, q, 0.0) / self._scale
        return np.where(np.asarray(q) == 0.0, at_zero / self._scale, found)[()]

    def ppf(self, p: ArrayLike) -> Array:
        """Return the quantile: the q with P(Q <= q) = p, for p in [0, 1]."""
        p = np.asarray(p, dtype=np.float64)
        if not ((p >= 0.0) & (p <= 1.0)).all():
            raise ValueError(f"p must lie in [0, 1], got {p}")
        return np.vectorize(self._quantile, otypes=[np.float64])(p)[()]

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        *,
        rng: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> Array:
        """Draw from the law."""
        generator = np.random.default_rng(rng)
        shape = () if size is None else (size,) if isinstance(size, int) else size
        total = np.zeros(shape)
        for weight in self.weights:
            total += weight * generator.chisquare(1.0, size=shape)
        return total[()]

    def __repr__(self) -> str:
        return f"WeightedChiSquare(n={self.weights.size}, mean={self.mean():.4g}, std={self.std():.4g})"

    @property
    def _scale(self) -> float:
        return float(self.weights[0])

    @cached_property
    def _unit(self) -> Array:
        """The weights relative to the largest."""
        return self.weights / self._scale

    @cached_property
    def _middle(self) -> float:
        """The mean of Q in units of the largest weight, where the tails change over."""
        return float(self._unit.sum())

    def _each(self, function: Callable[[float], float], q: ArrayLike, below: float) -> Array:
        """Apply `function` to q in units of the largest weight; `below` is the value for q <= 0."""
        q = np.asarray(q, dtype=np.float64)
        if np.isnan(q).any():
            raise ValueError("q must not be NaN")

        def value(u: float) -> float:
            if u <= 0.0:
                return below
            return function(u) if np.isfinite(u) else (0.0 if function == self._density else 1.0 - below)

        return np.vectorize(value, otypes=[np.float64])(q / self._scale)[()]

    def _derivatives(self, t: float) -> tuple[float, float, float]:
        """K', K'' and K''' at a real t below 1/2."""
        ratio = self._unit / (1.0 - 2.0 * self._unit * t)
        return float(ratio.sum()), float(2.0 * (ratio**2).sum()), float(8.0 * (ratio**3).sum())

    def _upper(self, q: float) -> float:
        """P(Q > q) by a path to the right of 0."""
        root = self._saddle(q, 1.0, 0.0, 0.5)
        return self._invert(q, root, pole=True)

    def _lower(self, q: float) -> float:
        """P(Q <= q) by a path to the left of 0."""
        low = -1.0
        while self._derivatives(low)[0] - 1.0 / low > q:
            low *= 2.0
        root = self._saddle(q, 1.0, low, 0.0)
        return -self._invert(q, root, pole=True)

    def _density(self, q: float) -> float:
        low = -1.0
        while self._derivatives(low)[0] > q:
            low *= 2.0
        return self._invert(q, self._saddle(q, 0.0, low, 0.5), pole=False)

    def _saddle(self, q: float, pole: float, low: float, high: float) -> float:
        """Solve K'(t) - pole/t = q between low and high, where the left side rises from below q to above it."""

        def slope(t: float) -> float:
            return self._derivatives(t)[0] - (pole / t if pole else 0.0) - q

        width = high - low
        inset = 1e-3
        left, right = low, high
        # The ends may be poles of the slope: step in from them until the sign is right.
        while (pole and left == 0.0) or slope(left) > 0.0:
            left = low + inset * width
            inset *= 1e-2
        inset = 1e-3
        right = high - inset * width
        while slope(right) < 0.0:
            inset *= 1e-2
            right = high - inset * width
        return float(brentq(slope, left, right, xtol=1e-300, rtol=1e-12))

    def _invert(self, q: float, root: float, *, pole: bool) -> float:
        """(1/(2 pi i)) times the integral of exp(K(t) - t q) / t (without / t for a density) through `root`."""
        _, second, third = self._derivatives(root)
        if pole:
            second += root**-2
            third -= 2.0 * root**-3
        # Steepest descent near the root; but always to the right, where exp(-t q) falls.
        bend = max(third / (6.0 * second), 0.1 * np.sqrt(second))
        step = 0.5 / np.sqrt(second)
        peak = self._exponent(np.array([complex(root)]), q, pole)[0].real
        if peak < _UNDERFLOW:
            return 0.0

        def half_sum(offsets: Array) -> float:
            t = root + 1j * offsets + bend * offsets**2
            value = np.exp(self._exponent(t, q, pole) - peak) * (1.0 - 2.0j * bend * offsets)
            return float(value.real.sum())

        reach = step
        while self._size(q, root, bend, reach, pole) - peak > -45.0:
            reach *= 1.5
        count = int(np.ceil(reach / step))
        total = 0.5 + half_sum(step * np.arange(1, count + 1))
        previous = np.inf
        for _ in range(_REFINEMENTS):
            estimate = total * step
            if abs(estimate - previous) <= _RELATIVE_ERROR * abs(estimate):
                break
            previous = estimate
            total += half_sum(step * (np.arange(count) + 0.5))
            step /= 2.0
            count *= 2
        sign = -1.0 if pole and root < 0.0 else 1.0
        return float(sign * np.exp(peak) * estimate / np.pi)

    def _size(self, q: float, root: float, bend: float, offset: float, pole: bool) -> float:
        t = np.array([root + 1j * offset + bend * offset**2])
        return float(self._exponent(t, q, pole)[0].real)

    def _exponent(self, t: NDArray[np.complex128], q: float, pole: bool) -> NDArray[np.complex128]:
        """K(t) - t q - log(t), up to the sign of t."""
        total = -0.5 * np.log(1.0 - 2.0 * self._unit[:, None] * t).sum(axis=0) - t * q
        if pole:
            total = total - np.log(t if t[0].real > 0.0 else -t)
        return total

    def _quantile(self, p: float) -> float:
        if p in (0.0, 1.0):
            return 0.0 if p == 0.0 else np.inf
        low = high = self.mean()
        while self.cdf(low) > p:
            low /= 2.0
        while self.cdf(high) < p:
            high *= 2.0
        if p < self.cdf(self.mean()):
            return float(brentq(lambda q: float(np.log(self.cdf(q) / p)), low, high, xtol=1e-300, rtol=1e-13))
        return float(brentq(lambda q: float(np.log(self.sf(q) / (1.0 - p))), low, high, xtol=1e-300, rtol=1e-13))
