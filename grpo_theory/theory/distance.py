"""How far a sample is from a law: the largest distance of the distribution functions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_fraction, as_real_array


@dataclass(frozen=True)
class LawDistance:
    """The Kolmogorov distance of the law that a sample is drawn from to a given law, from the sample.

    Attributes
    ----------
    estimate : float
        The largest difference between the empirical distribution function and the law's.
    low, high : float
        Limits of the true distance, by the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990). They are
        valid for every sample size. If low is above 0, the law is refuted.
    level : float
        The confidence level of the limits.
    replications : int
        The size of the sample.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.WeightedChiSquare([1.0, 0.5])
    >>> found = law.compare(1.2 * law.rvs(4000, rng=0))  # draws from another law
    >>> found.low > 0.0
    True
    """

    estimate: float
    low: float
    high: float
    level: float
    replications: int


def law_distance(cdf: Callable[[Array], Array], values: ArrayLike, level: float = 0.95) -> LawDistance:
    """Measure the distance of a sample (R,) from the law with a continuous distribution function."""
    sample, level = np.sort(as_real_array("values", values, 1)), as_fraction("level", level)
    below = np.asarray(cdf(sample))
    steps = np.arange(sample.size + 1) / sample.size
    estimate = float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
    half = float(np.sqrt(np.log(2.0 / (1.0 - level)) / (2.0 * sample.size)))
    return LawDistance(estimate, max(0.0, estimate - half), min(1.0, estimate + half), level, sample.size)
