"""Means over prompts of a function of the success rate, and ratios of two: limits that hold whatever the law of rates."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.bounded_mean import mean_limits, ratio_limit
from grpo_theory.plan.brackets import RateFunction, bracket, power_of_two, reference_parameter
from grpo_theory.plan.success_rates import SuccessRates, check_binary, fit_success_rates
from grpo_theory.samples import RewardCounts
from grpo_theory.validation import as_real_array, check_within, typed


@dataclass(frozen=True, eq=False)
class Terms:
    """One term a prompt, whose means are at most, and at least, the mean of a function of the success rate.

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
    found = {int(size): bracket(function, int(size), near.a, near.a, near.prompts) for size in np.unique(counts.sizes)}
    below, above = np.empty(counts.prompts), np.empty(counts.prompts)
    for size, (lower, upper) in found.items():
        here = counts.sizes == size
        below[here], above[here] = lower[counts.successes[here]], upper[counts.successes[here]]
    return terms_of(below, above, found, int(counts.sizes.sum()))


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


@typed
def bound_success_rates(
    counts: RewardCounts, rates: ArrayLike, level: float = 0.95, *, law: SuccessRates | None = None
) -> Interval:
    """Return intervals of the share of prompts whose success rate is at most `rates`.

    Through groups of n responses only the first n moments of the law of success rates are seen. The limits are those of
    polynomials of degree n above and below the step: they hold whatever the law, and stay apart however many prompts there are.
    The estimate is that of the likeliest law (docs/derivations.md, section 34).

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards, and at least two prompts; groups of any sizes.
    rates : array_like, shape (S,)
        In [0, 1].
    level : float, default 0.95
        Of each interval by itself.
    law : SuccessRates, optional
        What `fit_success_rates(counts)` returns, if it is at hand.

    Returns
    -------
    Interval
        Shape (S,); no standard errors.

    Raises
    ------
    ValueError
        If there are not exactly two rewards, or fewer than two prompts.
    """
    level = check_level(level)
    check_pairs(counts)
    rates = as_real_array("rates", rates, 1)
    check_within("rates", rates, 0.0, 1.0)
    law = fit_success_rates(counts) if law is None else law
    found = []
    for rate in rates:
        terms = average_terms(counts, RateFunction(np.ones_like, "plain", (1.0,), 0.0, float(rate)))
        found.append(mean_interval(terms, float(law.cdf(rate)), level))
    return clipped(stacked(found))


def check_pairs(counts: RewardCounts) -> None:
    """Raise unless there are two rewards and at least two prompts."""
    check_binary(counts)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")


def clipped(found: Interval) -> Interval:
    """Return intervals of shares within [0, 1]."""
    low, high = (np.clip(limit, 0.0, 1.0) for limit in (found.low, found.high))
    return Interval(found.estimate, found.standard_error, low, high, found.level)
