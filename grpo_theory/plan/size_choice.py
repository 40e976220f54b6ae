"""A choice among group sizes: the recommended one, those that may be best, what each loses, and how well ratios are known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.intervals.heavy_tails import student_coverage, tail_quantiles
from grpo_theory.intervals.interval import Interval, quotient_limits

FEWEST_PROMPTS = 3
"""Of which a group size is chosen: fewer give no standard errors by leaving one out."""
MOST_FACTOR = 4096.0
"""A pilot is not advised to be more than so many times larger."""
RIVALS = 128
"""Each size is compared with at most so many others, spread evenly in the logarithm."""
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class SizeChoice:
    """The allowed batches, what each loses, and which is best.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The group sizes, ascending, and the number of prompts at each.
    loss : Interval
        Shape (K,): what each size loses against the best one. No standard errors.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    """

    group_sizes: Integers
    batch_sizes: Integers
    loss: Interval
    candidates: Flags
    best: int

    @property
    def group_size(self) -> int:
        """The recommended group size."""
        return int(self.group_sizes[self.best])

    @property
    def batch_size(self) -> int:
        """The number of prompts beside it."""
        return int(self.batch_sizes[self.best])

    @property
    def low(self) -> int:
        """The smallest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][0])

    @property
    def high(self) -> int:
        """The largest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][-1])

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The smallest and the largest size of each run of whole numbers without a hole that cannot be told from the best."""
        kept = self.group_sizes[self.candidates]
        breaks = np.flatnonzero(np.diff(kept) > 1)
        first, last = kept[[0, *(breaks + 1)]], kept[[*breaks, kept.size - 1]]
        return list(zip(first.tolist(), last.tolist(), strict=True))

    @property
    def bounded(self) -> bool:
        """Whether the data rule out that the largest allowed group is best."""
        return not bool(self.candidates[-1])

    @property
    def risk(self) -> float:
        """The upper limit of what the recommended size loses; infinite if the data set none."""
        return float(self.loss.high[self.best])

    def at(self, group_size: int) -> int:
        """Return the index of a group size; ValueError if no batch of it is allowed."""
        index = int(np.searchsorted(self.group_sizes, group_size))
        if index == self.group_sizes.size or self.group_sizes[index] != group_size:
            raise ValueError(f"group_size must be one that budget and limits allow, got {group_size}")
        return index


def sufficient_prompts(risk: Callable[[int], float], pilot: int, tolerance: float) -> int | None:
    """Return the least number of prompts at which a limit that falls with it is within the tolerance, from a pilot's number on.

    None if it is within the tolerance at the pilot's own, so that this limit is not what the pilot lacks, and if more than
    `MOST_FACTOR` times as many are needed.
    """
    low = high = pilot
    if risk(pilot) <= tolerance:
        return None
    while risk(high) > tolerance:
        low, high = high, 2 * high
        if high > MOST_FACTOR * pilot:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if risk(middle) > tolerance else (low, middle)
    return high


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
