"""Means over prompts of a function of the success rate, and ratios of two: limits that hold whatever the law of rates."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, stdtrit

from grpo_theory.intervals import Interval
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.brackets import RateFunction, bracket, power_of_two, reference_parameter
from grpo_theory.validation import ROUNDING, Array

UNSEEN = 4.0
"""Prompts that were not drawn and might have been at either end: Agresti and Coull's (1998) four."""
INFINITE = 1e12
"""Degrees of freedom at which Student's t is normal."""


@dataclass(frozen=True, eq=False)
class Terms:
    """One term per prompt, whose means are at most, and at least, the mean of a function of the success rate.

    Attributes
    ----------
    below, above : ndarray, shape (B,)
        The same where the mean is measured.
    ends_below, ends_above : (float, float)
        The ranges of the terms.
    responses : int
        The number of responses that they rest on.
    prompts : ndarray or float, default 1.0
        How many prompts have each term; of many tables at once, shape (..., B).
    """

    below: Array
    above: Array
    ends_below: tuple[float, float]
    ends_above: tuple[float, float]
    responses: int
    prompts: Array | float = 1.0

    @property
    def measured(self) -> bool:
        """Whether the mean is estimated without bias."""
        return self.below is self.above


def pair_share(counts: RewardCounts) -> float:
    """Return the share of pairs of a prompt's responses with one reward, averaged over the prompts that have pairs; 1 without."""
    n = counts.sizes.astype(np.float64)
    paired = n >= 2.0
    squares = np.asarray(counts.counts.astype(np.float64).power(2).sum(axis=1)).ravel()
    return float(((squares - n)[paired] / (n * (n - 1.0))[paired]).mean()) if paired.any() else 1.0


@dataclass(frozen=True)
class Reference:
    """What polynomials are chosen for: rounded to powers of two, so that the choice hardly sees the data.

    Attributes
    ----------
    a : float
        For success rates of the law beta(a, a).
    prompts : float
        For a mean over so many prompts.
    """

    a: float
    prompts: float

    @classmethod
    def of(cls, counts: RewardCounts) -> "Reference":
        """Return the law of which two responses agree as often as these do, and the number of prompts."""
        return cls(reference_parameter(pair_share(counts)), power_of_two(counts.prompts))


def average_terms(counts: RewardCounts, function: RateFunction, chosen_for: Reference | None = None) -> Terms:
    """Return the terms of a function's mean over the prompts, from binary rewards."""
    near = chosen_for or Reference.of(counts)
    brackets = {int(size): bracket(function, int(size), near.a, near.a, near.prompts) for size in np.unique(counts.sizes)}
    below, above = np.empty(counts.prompts), np.empty(counts.prompts)
    for size, (lower, upper) in brackets.items():
        here = counts.sizes == size
        below[here], above[here] = lower[counts.successes[here]], upper[counts.successes[here]]
    return terms_of(below, above, brackets, int(counts.sizes.sum()))


def terms_of(below: Array, above: Array, polynomials: Mapping[int, tuple[Array, Array]], responses: int) -> Terms:
    """Return terms with the ends of their ranges, those of the polynomials' coefficients; measured where all pairs are one."""
    lower, upper = (np.concatenate([pair[side] for pair in polynomials.values()]) for side in (0, 1))
    measured = all(pair[0] is pair[1] for pair in polynomials.values())
    ends_below, ends_above = ((float(one.min()), float(one.max())) for one in (lower, upper))
    return Terms(below, below if measured else above, ends_below, ends_above, responses)


def mean_ends(terms: Terms, level: float) -> tuple[Array, Array]:
    """Return the limits of the mean, shape (...)."""
    low = mean_limits(terms.below, *terms.ends_below, terms.responses, level, terms.prompts)[0]
    high = mean_limits(terms.above, *terms.ends_above, terms.responses, level, terms.prompts)[1]
    return low, high


def mean_interval(terms: Terms, predicted: float, level: float) -> Interval:
    """Return an interval of the mean; the estimate is the prediction where it is not measured."""
    estimate, error = predicted, np.nan
    if terms.measured:
        estimate, error = terms.below.mean(), terms.below.std(ddof=1) / np.sqrt(terms.below.size)
    return _interval(float(estimate), float(error), *mean_ends(terms, level), level)


def ratio_ends(top: Terms, bottom: Terms, level: float, sure: tuple[float, float]) -> tuple[Array, Array]:
    """Return the limits of the ratio of two means, neither below 0, within limits that are sure; shape (...)."""
    low = ratio_limit(top.below, bottom.above, level, above=False, prompts=top.prompts)
    high = ratio_limit(top.above, bottom.below, level, above=True, prompts=top.prompts)
    return np.clip(low, *sure), np.clip(high, *sure)


def ratio_interval(top: Terms, bottom: Terms, predicted: float, level: float, sure: tuple[float, float]) -> Interval:
    """Return an interval of the ratio of two means, neither below 0, within limits that are sure."""
    estimate, error = predicted, np.nan
    if top.measured and bottom.measured and bottom.below.mean() > 0.0:
        estimate = top.below.mean() / bottom.below.mean()
        influence = (top.below - estimate * bottom.below) / bottom.below.mean()
        error = influence.std(ddof=1) / np.sqrt(influence.size)
    return _interval(float(estimate), float(error), *ratio_ends(top, bottom, level, sure), level)


def _interval(estimate: float, error: float, low: Array, high: Array, level: float) -> Interval:
    """Return an interval with its estimate moved within it: what the likeliest law predicts may lie outside by little."""
    return Interval(np.clip(estimate, low, high), np.array(error), low, high, level)


def stacked(intervals: list[Interval]) -> Interval:
    """Return several intervals as one, shape (S,)."""
    table = np.array([(one.estimate, one.standard_error, one.low, one.high) for one in intervals])
    return Interval(table[:, 0], table[:, 1], table[:, 2], table[:, 3], intervals[0].level)


def clipped(shares: Interval) -> Interval:
    """Return intervals of shares within [0, 1], the estimate within its limits, and the lower limit not above the upper.

    Limits cross only where rewards are not what they were taken for, as where groups were chosen by their rewards.
    """
    ends = [np.clip(limit, 0.0, 1.0) for limit in (shares.low, shares.high)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    return Interval(np.clip(shares.estimate, low, high), shares.standard_error, low, high, shares.level)


def mean_limits(
    terms: Array, least: float, most: float, responses: int, level: float, prompts: Array | float = 1.0
) -> tuple[Array, Array]:
    """Return two-sided limits of the mean of independent terms in [least, most]: Clopper and Pearson's at an effective size.

    The terms are brought to [0, 1], with mean m and variance s^2. They then tell as much as n = B m (1 - m)/s^2 draws of 0 and
    1 (Korn and Graubard 1998). No law on [0, 1] has more variance than m (1 - m). Few terms may not show the rare large ones,
    so s^2 is taken as if four more terms had the variance m (1 - m). The size n is at most the number of responses, and is
    multiplied by (t_inf/t_{B-1})^2 for the degrees of freedom behind s. So rare events get honest limits, and where many terms
    vary the limits are Student's t.

    Parameters
    ----------
    terms : ndarray, shape (..., B)
    least, most : float
    responses : int
    level : float
    prompts : ndarray or float, default 1.0
        How many prompts have each term, in the terms' shape or one to which it extends; the number B is their sum.

    Returns
    -------
    (ndarray, ndarray), shape (...)
    """
    terms, weights = np.broadcast_arrays(terms, prompts)
    size, span = weights.sum(axis=-1), most - least
    if span <= 0.0:
        return np.full(terms.shape[:-1], least), np.full(terms.shape[:-1], most)
    scaled = np.clip((terms - least) / span, 0.0, 1.0)
    mean = (weights * scaled).sum(axis=-1) / size
    spread = mean * (1.0 - mean)
    variance = ((weights * (scaled - mean[..., None]) ** 2).sum(axis=-1) + UNSEEN * spread) / (size - 1.0 + UNSEEN)
    worth = np.where(spread > ROUNDING, size * spread / np.where(spread > ROUNDING, variance, 1.0), size)
    tail = (1.0 - level) / 2.0
    effective = np.minimum(worth, np.maximum(responses, size)) * (stdtrit(INFINITE, tail) / stdtrit(size - 1, tail)) ** 2
    low = _clopper_pearson(mean * effective, (1.0 - mean) * effective, tail)
    high = 1.0 - _clopper_pearson((1.0 - mean) * effective, mean * effective, tail)
    return least + span * low, least + span * high


def _clopper_pearson(successes: Array, failures: Array, tail: float) -> Array:
    """Return the lower limit of a probability, from numbers that need not be whole."""
    some = successes > 0.0
    return np.where(some, betaincinv(np.where(some, successes, 1.0), failures + 1.0, tail), 0.0)


def ratio_limit(numerator: Array, denominator: Array, level: float, above: bool, prompts: Array | float = 1.0) -> Array:
    """Return the upper or the lower of two-sided limits of E[numerator]/E[denominator] from independent pairs (..., B).

    Fieller's limits are the ends of the ratios r at which Student's t does not tell the mean of numerator - r denominator from
    0. The upper limit is inf, and the lower one -inf, where the denominator's mean is not surely above 0. `prompts` is as in
    `mean_limits`.
    """
    numerator, denominator, weights = np.broadcast_arrays(numerator, denominator, prompts)
    size = weights.sum(axis=-1)
    square = stdtrit(size - 1, (1.0 + level) / 2.0) ** 2 / (size * (size - 1.0))
    top, bottom = ((weights * one).sum(axis=-1) / size for one in (numerator, denominator))
    across, down = numerator - top[..., None], denominator - bottom[..., None]
    a = bottom**2 - square * (weights * down**2).sum(axis=-1)
    b = top * bottom - square * (weights * across * down).sum(axis=-1)
    c = top**2 - square * (weights * across**2).sum(axis=-1)
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    sure, end = (bottom > 0.0) & (a > 0.0), 1.0 if above else -1.0
    return np.where(sure, (b + end * root) / np.where(sure, a, 1.0), end * np.inf)
