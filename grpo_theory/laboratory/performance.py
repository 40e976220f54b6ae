"""Measures of performance over replications, each with its Monte Carlo standard error.

Names and formulae are those of Morris, White and Crowther (2019, Statistics in Medicine 38:2074-2102, Table 6).  The formula for
the empirical standard error, and so that for the relative error of the model's, supposes normal estimates.
"""

from collections.abc import Iterator
from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from grpo_theory.arrays import Array, Flags
from grpo_theory.laboratory.binomial import exact_limits

Measured = tuple[float, float]
"""An estimate and its Monte Carlo standard error; NaN where there are too few replications."""
Row = tuple[str, float, float, float, float]
"""Measure, estimate, Monte Carlo standard error, and limits."""


class Component(NamedTuple):
    """R replications of the statements on one number; one shape (R,) for all but the truth."""

    truth: float
    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    width: Array
    covered: Flags
    failed: Flags

    @property
    def known(self) -> Flags:
        """Where there is an estimate with limits."""
        return np.isfinite(self.estimate) & ~self.failed


def mean(values: Array) -> Measured:
    """Return the mean of n values; its error is NaN if one of them is infinite."""
    n = len(values)
    if n == 0:
        return nan, nan
    if np.isinf(values).any():
        return float(values.mean()), nan
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(n) if n > 1 else nan


def share(hits: Flags) -> Measured:
    """Return the share of hits."""
    part = float(hits.mean())
    return part, sqrt(part * (1.0 - part) / len(hits))


def empirical_error(estimate: Array) -> Measured:
    """Return the standard deviation of the estimates."""
    if len(estimate) < 2:
        return nan, nan
    deviation = float(estimate.std(ddof=1))
    return deviation, deviation / sqrt(2.0 * (len(estimate) - 1))


def model_error(standard_error: Array) -> Measured:
    """Return the root of the mean of the squared standard errors that the intervals were built on."""
    variance, mcse = mean(standard_error**2)
    error = sqrt(variance) if variance >= 0.0 else nan
    return error, mcse / (2.0 * error) if error > 0.0 else nan


def relative_error(estimate: Array, standard_error: Array) -> Measured:
    """Return by how many percent the model's standard error exceeds the empirical one."""
    empirical, _ = empirical_error(estimate)
    model, mcse = model_error(standard_error)
    if not empirical > 0.0 or not model > 0.0:
        return nan, nan
    ratio = model / empirical
    return 100.0 * (ratio - 1.0), 100.0 * ratio * sqrt((mcse / model) ** 2 + 0.5 / (len(estimate) - 1))


def of_estimates(part: Component, confidence: float) -> Iterator[Row]:
    """Yield the measures of the estimates, if there are any, and of their standard errors, with normal limits."""
    if not part.known.any():
        return
    estimate, standard_error = part.estimate[part.known], part.standard_error[part.known]
    deviation = estimate - part.truth
    yield _normal("bias", mean(deviation), confidence)
    yield _normal("empirical SE", empirical_error(estimate), confidence)
    yield _normal("MSE", mean(deviation**2), confidence)
    yield _normal("average model SE", model_error(standard_error), confidence)
    yield _normal("relative % error in model SE", relative_error(estimate, standard_error), confidence)


def of_limits(part: Component, null: float | None, confidence: float) -> Iterator[Row]:
    """Yield the measures that only the two limits of an interval have, with exact limits of their own."""
    if part.known.any():
        centre = part.estimate[part.known].mean()
        yield _exact("bias-eliminated coverage", (part.low <= centre) & (centre <= part.high), confidence)
    if null is not None:
        name, *row = _exact("rejection %", (null < part.low) | (part.high < null), confidence)
        yield name, *(100.0 * number for number in row)  # type: ignore[misc]


def of_sets(part: Component, confidence: float) -> Iterator[Row]:
    """Yield the measures that every confidence set has; a failure is in the denominator of the coverage."""
    yield _exact("coverage", part.covered, confidence)
    yield _normal("mean width", mean(part.width[~part.failed]), confidence)
    yield _exact("failures", part.failed, confidence)


def _normal(name: str, measured: Measured, confidence: float) -> Row:
    estimate, mcse = measured
    half = float(ndtri(0.5 + confidence / 2.0)) * mcse
    return name, estimate, mcse, estimate - half, estimate + half


def _exact(name: str, hits: Flags, confidence: float) -> Row:
    return name, *share(hits), *exact_limits(hits, confidence)
