"""Which group sizes have a larger error than others: ratios of errors that are linear in three estimated constants."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.intervals.heavy_tails import student_coverage, tail_quantiles
from grpo_theory.intervals.quotient import quotient_limits

RIVALS = 128
"""Each size is compared with at most so many others, spread evenly in the logarithm."""
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class Tails:
    """Quantiles of Student's statistic for whatever is made of three constants.

    Attributes
    ----------
    influences : ndarray, shape (3, B), or None
        None for Student's own quantiles.
    t : float
        Student's.
    level : float
    lower, upper : ndarray, shape (3,)
        For the constants themselves.
    student : float
        How often Student's limits of the constants would hold.
    """

    influences: Array | None
    t: float
    level: float
    lower: Array
    upper: Array
    student: float

    @classmethod
    def of(cls, influences: Array | None, t: float, level: float) -> "Tails":
        """Return the quantiles for the constants."""
        if influences is None:
            return cls(None, t, level, np.full(3, -t), np.full(3, t), level)
        return cls(influences, t, level, *tail_quantiles(influences, level), float(student_coverage(influences, level).min()))

    def of_errors(self, weights: Array, best: int) -> tuple[Array, Array]:
        """Return the quantiles for the errors with weights (K, 3) on the constants, both of shape (K,)."""
        return self._along(weights, rivals(len(weights), best), 0.0)

    def of_losses(self, weights: Array, best: int, constants: Array) -> tuple[Array, Array]:
        """Return the quantiles for each size's error less its share of the best one's, shape (K,) each; Student's at the best."""
        sizes, base = rivals(len(weights), best), float(weights[best] @ constants)
        ratio = (weights @ constants / base if base > 0.0 else np.ones(len(weights)))[:, None]
        lower, upper = self._along(weights, sizes, ratio * weights[best])
        lower[best], upper[best] = -self.t, self.t
        return lower, upper

    def _along(self, weights: Array, sizes: Integers, less: Array | float) -> tuple[Array, Array]:
        """Return the quantiles for weights less others, computed at some sizes, and at the others those of the nearest below."""
        if self.influences is None:
            return np.full(len(weights), -self.t), np.full(len(weights), self.t)
        nearest = np.searchsorted(sizes, np.arange(len(weights)), side="right") - 1
        lower, upper = tail_quantiles((weights - less)[sizes] @ self.influences, self.level)
        return lower[nearest], upper[nearest]


@dataclass(frozen=True, eq=False)
class SizeErrors:
    """The errors of K batches, each linear in three constants, and how well their ratios are known.

    Attributes
    ----------
    weights : ndarray, shape (K, 3)
        Of each batch's error on the constants.
    constants : ndarray, shape (3,)
        Estimates, none below 0.
    covariance : ndarray, shape (3, 3)
        Of the estimates.
    best : int
        The index of the recommended batch.
    """

    weights: Array
    constants: Array
    covariance: Array
    best: int

    def worst_ratios(self, tails: Tails) -> tuple[Array, Array, Flags]:
        """Return limits of each error over that of its best rival, (K,) each, and which sizes no rival is known to beat."""
        lower, upper = tails.of_losses(self.weights, self.best, self.constants)
        others = self.weights[rivals(len(self.weights), self.best)]
        low, high = np.empty(len(self.weights)), np.empty(len(self.weights))
        kept = np.empty(len(self.weights), dtype=bool)
        step = max(1, PAIRS_AT_ONCE // len(others))
        for start in range(0, len(self.weights), step):
            part = slice(start, start + step)
            limits = self.ratios(self.weights[part], others, lower[part, None], upper[part, None])
            low[part], high[part] = (limit.max(axis=1) for limit in limits)
            kept[part] = ~self._beaten(self.weights[part], others, tails.t)
        kept[self.best] = True
        return low, high, kept

    def largest_loss(self, t: float) -> float:
        """Return the upper limit of what the recommended batch loses to the best of its rivals, with a quantile of Student's."""
        others = self.weights[rivals(len(self.weights), self.best)]
        return float(self.ratios(self.weights[self.best : self.best + 1], others, -t, t)[1].max()) - 1.0

    def ratios(self, weights: Array, others: Array, lower: Array | float, upper: Array | float) -> tuple[Array, Array]:
        """Return Fieller's limits of errors (K,) over those of rivals (C,), both of shape (K, C), with quantiles (K, 1)."""
        half = weights @ self.covariance
        variances = (
            np.einsum("ki,ki->k", half, weights)[:, None],
            half @ others.T,
            np.einsum("ci,ij,cj->c", others, self.covariance, others),
        )
        return quotient_limits((weights @ self.constants)[:, None], others @ self.constants, variances, lower, upper)

    def _beaten(self, weights: Array, others: Array, t: float) -> Flags:
        """Return which sizes (K,) have an error that is significantly above that of some rival."""
        spread, axes = np.linalg.eigh(self.covariance)
        root = axes * np.sqrt(np.maximum(spread, 0.0))
        variance = sum((mine[:, None] - theirs) ** 2 for mine, theirs in zip((weights @ root).T, (others @ root).T, strict=True))
        return ((weights @ self.constants)[:, None] - others @ self.constants > t * np.sqrt(variance)).any(axis=1)


def rivals(size: int, best: int) -> Integers:
    """Return the indices of the sizes that all are compared with: at most `RIVALS`, the best and its neighbours among them."""
    if size <= RIVALS:
        return np.arange(size)
    spread = np.round(np.geomspace(1.0, size, RIVALS - 3)).astype(np.int64) - 1
    return np.unique(np.append(spread, np.clip([best - 1, best, best + 1], 0, size - 1)))
