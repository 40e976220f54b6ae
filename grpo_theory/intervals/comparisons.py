"""Comparisons by paired runs: the difference of two estimators, fixed or watched, the seeds it takes, and the best of several."""

from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from grpo_theory.intervals.interval import Interval, around, check_level, student_quantile, vectorized
from grpo_theory.validation import ROUNDING, Array, Flags, as_count, as_fraction, as_number, as_positive, as_real_array

MOST_SEEDS = 10_000_000
WAITING = "limits are infinite where there are too few pairs yet to bound the difference, or all differences so far are equal"


@vectorized
def paired_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Return the paired t interval for the mean of a - b.

    Parameters
    ----------
    a, b : array_like, shape (..., R)
        One number per run (the final objective, say) of two estimators.  The r-th runs of both have the same seed, so that they
        see common random numbers.  At least two runs, all finite: count diverged runs apart.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...); NaN limits for those of many samples whose differences are all equal but for rounding.

    Notes
    -----
    Exact for normal differences, whatever the correlation of the pair; for others as R grows.  The number of runs must have
    been fixed beforehand: looked at after every run until it excludes zero, it fails (use `paired_sequence`).

    Measured (study "coverage_pairs") on differences after one step, which are skewed: a little short at 30 pairs, near at 400.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> interval = gt.intervals.paired_difference([0.71, 0.65, 0.69, 0.73], [0.68, 0.61, 0.67, 0.69])
    >>> round(float(interval.low), 3), round(float(interval.high), 3)
    (0.017, 0.048)
    """
    level = check_level(level)
    differences, varies = _differences(a, b)
    runs, constant = differences.shape[-1], ~varies[..., -1]
    error = np.where(constant, np.nan, differences.std(axis=-1, ddof=1) / np.sqrt(runs))
    quantile, single = student_quantile(runs - 1, level), differences.ndim == 1
    return around(differences.mean(axis=-1), error, level, quantile, single=single, of="the differences a - b")


@vectorized
def paired_sequence(a: ArrayLike, b: ArrayLike, level: float = 0.95, *, horizon: int = 30) -> Interval:
    """Return a confidence sequence for the mean of a - b: limits after every pair, which hold for all numbers of pairs together.

    Watch it as long as you like, and stop when you like.  For each mean mu, let t be the t statistic of a - b - mu, and

        E_n = (1 + n g)^(-1/2) {(1 + t^2/(n - 1)) / (1 + t^2/((n - 1)(1 + n g)))}^(n/2).

    This is the ratio of the likelihoods of t, with the standardised mean drawn from N(0, g) and with it 0.  It is a martingale of
    mean 1 under mu.  By Ville's inequality it ever reaches 1/alpha, for alpha = 1 - level, with probability at most alpha.  The
    sequence contains each mu at which it has not done so (Lai 1976; Wang and Ramdas 2025; docs/derivations.md, section 13).

    Parameters
    ----------
    a, b : array_like, shape (..., R)
        As for `paired_difference`, in the order of the runs.
    level : float, default 0.95
        Of the whole sequence.
    horizon : int, default 30
        The number of pairs at which the limits are about as narrow as such a sequence can be; chosen before looking.

    Returns
    -------
    Interval
        Shape (..., R): the limits after 1..R pairs, infinite for the first few, and while all differences are equal.

    Notes
    -----
    Exact for normal differences of any variance.  For others it is an asymptotic confidence sequence in the sense of
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024).  It is valid from a number of pairs on at which their mean is near
    normal.  Start late where differences are skewed.

    Measured (study "coverage_pairs") on differences after one step: it holds from the hundredth pair on, and nearly so from the
    tenth.  Intervals by Student's t that are watched as long fail.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(0.70, 0.05, 40)
    >>> second = first - rng.normal(0.02, 0.01, 40)  # on the same seeds
    >>> sequence = gt.intervals.paired_sequence(first, second)
    >>> bool(sequence.low[-1] > 0.0)  # the sequence may be looked at after every pair
    True
    """
    level = check_level(level)
    differences, varies = _differences(a, b)
    n = np.arange(1.0, differences.shape[-1] + 1.0)
    # Sums about the first difference keep their digits.
    first = differences[..., :1]
    shifted = differences - first
    mean = np.cumsum(shifted, axis=-1) / n
    squares = np.maximum(np.cumsum(shifted**2, axis=-1) - n * mean**2, 0.0)
    degrees = np.maximum(n - 1.0, 1.0)
    error = np.where(n > 1.0, np.sqrt(squares / (degrees * n)), np.inf)
    # E_n = 1/alpha where t^2/(n - 1) = (c - 1)/(1 - c/(1 + n g)), with c = ((1 + n g)/alpha^2)^(1/n).
    growth = 1.0 + n * prior_variance(level, as_count("horizon", horizon))
    bound = np.exp((np.log(growth) - 2.0 * np.log1p(-level)) / n)
    finite = (bound < growth) & varies
    ratio = np.where(finite, bound - 1.0, np.inf) / np.where(finite, 1.0 - bound / growth, 1.0)
    # |mean D - mu| = |t| se, and E_n < 1/alpha where t^2 < (n - 1) ratio (docs/derivations.md, section 13.4).
    half = np.sqrt(degrees * ratio) * np.where(finite, error, 1.0)
    estimate, note = mean + first, WAITING if np.isinf(half).any() else ""
    return Interval(estimate, error, estimate - half, estimate + half, level, note)


def prior_variance(level: float, horizon: int) -> float:
    """The prior variance for which the sequence is about narrowest at the horizon (Waudby-Smith et al. 2024)."""
    # g n = -2 log alpha + log(1 - 2 log alpha), n the horizon and alpha = 1 - level (Waudby-Smith et al. 2024).
    logarithm = -2.0 * np.log1p(-level)
    return float((logarithm + np.log(max(logarithm, 1e-3) + 1.0)) / horizon)


def seeds_needed(a: ArrayLike, b: ArrayLike, difference: float, power: float = 0.8, level: float = 0.95) -> int:
    """Return the number of paired runs at which a paired t test finds a difference, from pilot runs.

    Parameters
    ----------
    a, b : array_like, shape (R,)
        Pilot runs, as for `paired_difference`; only the standard deviation of their differences is used.
    difference : float
        The true mean difference to be found, of either sign, not 0.
    power : float, default 0.8
        The probability to find it, with its sign.
    level : float, default 0.95
        One less the size of the two-sided test.

    Returns
    -------
    int
        The least R >= 2 with P(T > t) >= power, T noncentral t with R - 1 degrees of freedom and noncentrality sqrt(R)
        difference / s.

    Notes
    -----
    Exact for normal differences if s were their standard deviation.  A pilot of R runs knows it to about 1/sqrt(2 R) of itself,
    and the number of seeds to twice that: 30% for 20 runs.

    The study "coverage_pairs" measures the power at the advised number.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.intervals.seeds_needed([0.71, 0.65, 0.69, 0.73], [0.68, 0.61, 0.67, 0.69], difference=0.01)
    10
    """
    level, power = check_level(level), as_fraction("power", power)
    difference = as_number("difference", difference)
    if not np.isfinite(difference) or difference == 0.0:
        raise ValueError(f"difference must be finite and not 0, got {difference}")
    differences, varies = _differences(a, b)
    if differences.ndim != 1:
        raise ValueError(f"a and b must have shape (R,), one pilot, got {differences.shape}")
    spread = as_positive("standard deviation of a - b", float(differences.std(ddof=1)) if varies[-1] else 0.0)
    pairs = pairs_needed(abs(difference) / spread, power, level)
    if pairs > MOST_SEEDS:
        raise ValueError(f"difference must be larger: {difference:g} needs over {MOST_SEEDS} seeds at a spread of {spread:.3g}")
    return pairs


def pairs_needed(effect: float, power: float, level: float) -> int:
    """Return the least number of pairs at which a paired t test finds an effect above 0, `MOST_SEEDS` + 1 if it is larger.

    This is the least R >= 2 with P(T > t) >= power.  T is noncentral t with R - 1 degrees of freedom and noncentrality sqrt(R)
    effect.  The effect is the mean difference in standard deviations of a difference.
    """
    from scipy.stats import nct  # slow to import, and seldom wanted

    signal, most = min(effect, 1e6), range(MOST_SEEDS + 1)  # any larger effect is found as soon
    return bisect_left(most, power, lo=2, key=lambda n: nct.sf(student_quantile(n - 1, level), n - 1, np.sqrt(n) * signal))


def _differences(a: ArrayLike, b: ArrayLike) -> tuple[Array, Flags]:
    """Return a - b, and whether the differences of the first 1..R pairs vary by more than rounding, shape (..., R) each."""
    first, second = as_real_array("a", a, None), as_real_array("b", b, None)
    if first.shape != second.shape:
        raise ValueError(f"a and b must have one shape (..., R), got {first.shape} and {second.shape}")
    if first.shape[-1] < 2:
        raise ValueError(f"a and b must have at least 2 runs, got {first.shape[-1]}")
    differences = first - second
    spread = np.maximum.accumulate(differences, axis=-1) - np.minimum.accumulate(differences, axis=-1)
    size = np.maximum.accumulate(np.maximum(np.abs(first), np.abs(second)), axis=-1)
    return differences, spread > ROUNDING * size


def best_set(samples: ArrayLike, level: float = 0.95) -> Flags:
    """Return which candidates cannot be distinguished from the one with the highest mean, shape (k,).

    A candidate leaves the set if another beats it in a one-sided paired t test at (1 - level)/(k - 1).  The best candidate
    faces k - 1 such tests.  So by Bonferroni's inequality it stays with probability at least the level, whatever the variances
    and correlations.  If several candidates tie for best, this holds for each of them.  This is Hsu's multiple comparison with
    the best (1984) without its assumption of equal variances.

    Parameters
    ----------
    samples : array_like, shape (R, k)
        R independent rows, one column per candidate; columns may be correlated.  Larger is better.
    level : float, default 0.95

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> runs = np.random.default_rng(0).normal([0.7, 0.69, 0.5], 0.05, size=(20, 3))  # final success of 3 settings, 20 seeds each
    >>> gt.intervals.best_set(runs).tolist()
    [True, True, False]
    """
    samples = as_real_array("samples", samples, 2)
    runs, candidates = samples.shape
    if runs < 2:
        raise ValueError(f"samples must have at least 2 rows, got {runs}")
    level = check_level(level)
    critical = -float(stdtrit(runs - 1, (1.0 - level) / max(candidates - 1, 1)))
    # Candidate i stays if mean(x_j - x_i) <= t sd(x_j - x_i)/sqrt(R) for all j, and t is exceeded with probability
    # (1 - level)/(k - 1) (Hsu 1984; Bonferroni).
    lead = samples[:, None, :] - samples[:, :, None]
    return (lead.mean(axis=0) <= critical * lead.std(axis=0, ddof=1) / np.sqrt(runs)).all(axis=-1)
