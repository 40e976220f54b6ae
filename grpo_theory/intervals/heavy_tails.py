"""Limits that allow for heavy tails: Student's statistic as it is distributed where prompts differ much in gradient length.

Lengths of gradients are skewed. A table of 30 prompts often lacks the rare long ones, and then both the estimate and its
standard error come out too small. Student's quantiles, and those of a bootstrap over the prompts, do not know of prompts that
are not in the table. Here the quantiles are those of Student's statistic for draws from a shifted lognormal law as skewed as the
prompts' influences (docs/derivations.md, section 35).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from grpo_theory.arrays import Array, read_only
from grpo_theory.intervals.interval import check_level

SPREADS = np.arange(0.0, 2.51, 0.25)
"""Standard deviations of the logarithm for which quantiles are tabulated; 0 stands for the normal law. A larger one is replaced
by the last."""
ALLOWANCE = 1.0
"""The L-skewness is taken to be larger than estimated by this number over the root of the number of prompts. That is 1 to 2 of
its standard errors. A rule written beforehand chose 0.75 of values from 0 to 1.25, on other draws than those on which the study
judges. We took the next value, 1: coverage at 0.75 was too near to what the rule asks for to be confirmed (section 35)."""
LARGEST = 256
"""Student's statistic is simulated for at most so many prompts; for more, its quantiles fall towards Student's from there."""
RATE = 0.4
"""The power of the number of prompts by which the excess over Student's quantiles falls. Simulated from 256 to 4,096 prompts, it
fell with powers from 0.3 to 0.6."""
DRAWS, FEWEST_SAMPLES, MOST_SAMPLES = 1 << 21, 1 << 13, 1 << 15
SEED = 20261125
QUANTILE_POINTS = 20_000


class TailTable(NamedTuple):
    """What Student's statistic does, for each of `SPREADS`, all of shape (S,).

    Attributes
    ----------
    skewness : ndarray
        The L-skewness of the law.
    lower, upper : ndarray
        Quantiles of the statistic that leave out (1 - level)/2 on either side; never nearer to 0 than Student's.
    coverage : ndarray
        How often Student's own limits hold.
    """

    skewness: Array
    lower: Array
    upper: Array
    coverage: Array


def l_skewness(values: Array) -> Array:
    """Return the sample L-skewness along the last axis, between -1 and 1; 0 where values do not vary (Hosking 1990)."""
    ordered = np.sort(values, axis=-1)
    scale, third = np.moveaxis(ordered @ _moment_weights(values.shape[-1]), -1, 0)
    known = scale > 1e-12 * np.maximum(np.abs(ordered[..., 0]), np.abs(ordered[..., -1]))
    return np.clip(np.divide(third, scale, out=np.zeros_like(scale), where=known), -1.0, 1.0)


@lru_cache(maxsize=64)
def _moment_weights(size: int) -> Array:
    """Return the weights of ordered values in the second and the third L-moment, shape (size, 2)."""
    rank = np.arange(size, dtype=np.float64)
    first = rank / (size - 1.0)
    second = first * (rank - 1.0) / (size - 2.0)
    return read_only(np.stack([2.0 * first - 1.0, 6.0 * second - 6.0 * first + 1.0], axis=-1) / size)


@lru_cache(maxsize=1)
def _lognormal_skewness() -> Array:
    """Return the L-skewness of lognormal laws, by the quantile function."""
    share = (np.arange(QUANTILE_POINTS) + 0.5) / QUANTILE_POINTS
    normal = ndtri(share)
    skewness = [0.0]
    for spread in SPREADS[1:]:
        law = np.exp(spread * normal)
        mean, one, two = law.mean(), (share * law).mean(), (share**2 * law).mean()
        skewness.append((6.0 * two - 6.0 * one + mean) / (2.0 * one - mean))
    return read_only(np.array(skewness))


@lru_cache(maxsize=64)
def tail_table(prompts: int, level: float) -> TailTable:
    """Return the quantiles of Student's statistic for so many prompts, by simulation with a fixed seed: the same each time."""
    size = min(prompts, LARGEST)
    tails = np.array([1.0 - level, 1.0 + level]) / 2.0
    student, own = (float(stdtrit(n - 1, tails[1])) for n in (size, prompts))
    shrink = (size / prompts) ** RATE
    samples = int(np.clip(DRAWS // size, FEWEST_SAMPLES, MOST_SAMPLES))
    normal = np.random.default_rng(SEED).standard_normal((samples, size))
    lower, upper, coverage = [-own], [own], [level]
    for spread in SPREADS[1:]:
        statistic = _students(np.exp(spread * normal), float(np.exp(spread**2 / 2.0)))
        low, high = np.quantile(statistic, tails)
        lower.append(-own - max(-student - float(low), 0.0) * shrink)
        upper.append(own + max(float(high) - student, 0.0) * shrink)
        held = float((np.abs(statistic) <= student).mean())
        coverage.append(level - max(level - held, 0.0) * shrink)
    return read_only(TailTable(_lognormal_skewness(), np.array(lower), np.array(upper), np.array(coverage)))


def _students(samples: Array, mean: float) -> Array:
    """Return Student's statistic of each row about the law's mean."""
    return (samples.mean(axis=1) - mean) / (samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1]))


def tail_quantiles(influence: Array, level: float) -> tuple[Array, Array]:
    """Return the lower and the upper quantile, shape (...), of (estimate - truth)/se, from the prompts' influences (..., B).

    Limits are estimate - upper se and estimate - lower se. The quantiles are those of draws from a shifted lognormal law, turned
    round if the influences' L-skewness is negative. In size, the law's L-skewness is that of the influences plus `ALLOWANCE` over
    the root of B. The quantiles are never nearer to 0 than Student's.

    No limits can hold whatever the law (Bahadur and Savage 1956). A table of 30 prompts may lack a kind of prompt that is one in
    twenty, and then says nothing about it. The study "plan_coverage" has the laws on which these limits were tried.

    Parameters
    ----------
    influence : ndarray, shape (..., B)
        What each prompt adds to the estimate's error, of mean 0; B of at least 3.
    level : float
    """
    table, skewness = tail_table(influence.shape[-1], check_level(level)), l_skewness(influence)
    size = np.abs(skewness) + ALLOWANCE / np.sqrt(influence.shape[-1])
    lower, upper = (np.interp(size, table.skewness, side) for side in (table.lower, table.upper))
    turned = skewness < 0.0
    return np.where(turned, -upper, lower), np.where(turned, -lower, upper)


def student_coverage(influence: Array, level: float) -> Array:
    """Return how often Student's limits would hold for a law as skewed as the prompts' influences (..., B), shape (...)."""
    table = tail_table(influence.shape[-1], check_level(level))
    return np.asarray(np.interp(np.abs(l_skewness(influence)), table.skewness, table.coverage))
