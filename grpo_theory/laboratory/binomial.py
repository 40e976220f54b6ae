"""Exact binomial answers to what a share of hits says."""

from math import ceil, sqrt

from scipy.special import betaincinv, ndtri

from grpo_theory.arrays import Flags
from grpo_theory.validation import as_fraction


def exact_limits(hits: Flags, confidence: float) -> tuple[float, float]:
    """Return Clopper and Pearson's limits of the probability of a hit, which are quantiles of beta laws."""
    count = int(hits.sum())
    missed, tail = len(hits) - count, (1.0 - confidence) / 2.0
    low = float(betaincinv(count, missed + 1.0, tail)) if count else 0.0
    high = float(betaincinv(count + 1.0, missed, 1.0 - tail)) if missed else 1.0
    return low, high


def exact_p_value(hits: Flags, probability: float) -> float:
    """Return the p-value of the two-sided test that a hit has the given probability."""
    from scipy.stats import binomtest  # slow to import, and seldom wanted

    return float(binomtest(int(hits.sum()), len(hits), probability).pvalue)


LEAST_ERROR = 1e-100
"""Smaller errors are refused: their quantiles may be no numbers."""


def replications_to_tell(level: float, coverage: float, *, error: float = 1e-3, power: float = 0.99) -> int:
    """Return how many replications tell a true coverage from the nominal level.

    Parameters
    ----------
    level, coverage : float
        The nominal level, and the true coverage that is to be told from it.
    error : float, default 1e-3
        Of the exact test of the level, half of it in each tail.
    power : float, default 0.99

    Returns
    -------
    int
        A number at which the test's exact power is enough: what the normal approximation says, or at most 2% more than needed.

    Raises
    ------
    ValueError
        If an argument does not lie strictly between 0 and 1, or coverage is the level.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.laboratory.replications_to_tell(0.95, 0.94)
    16772
    """
    for name, value in (("level", level), ("coverage", coverage), ("error", error), ("power", power)):
        as_fraction(name, value)
    if error < LEAST_ERROR:
        raise ValueError(f"error must be at least {LEAST_ERROR:g}, got {error:g}")
    if coverage == level:
        raise ValueError(f"coverage must differ from the level {level:g}, got the same")
    null, other = sqrt(level * (1.0 - level)), sqrt(coverage * (1.0 - coverage))
    # The normal approximation starts the search, and the exact power ends it.
    n = ceil(((-ndtri(error / 2.0) * null + ndtri(power) * other) / (coverage - level)) ** 2)
    while _power(n, level, coverage, error) < power:
        n = ceil(1.02 * n)
    return n


def _power(n: int, level: float, coverage: float, error: float) -> float:
    from scipy.stats import binom  # slow to import, and seldom wanted

    below, above = binom.ppf(error / 2.0, n, level) - 1, binom.isf(error / 2.0, n, level)
    return float(binom.cdf(below, n, coverage) + binom.sf(above, n, coverage))
