"""Confidence limits of a mean over prompts of bounded terms, and of a ratio of two."""

import numpy as np
from scipy.special import betaincinv, stdtrit

from grpo_theory.arrays import Array
from grpo_theory.validation import ROUNDING

UNSEEN = 4.0
"""Prompts that were not drawn and might have been at either end: Agresti and Coull's (1998) four."""
INFINITE = 1e12
"""Degrees of freedom at which Student's t is normal."""


def mean_limits(terms: Array, least: float, most: float, responses: int, level: float) -> tuple[float, float]:
    """Return two-sided limits of the mean of independent terms (B,) in [least, most]: Clopper and Pearson's at an effective size.

    With the terms brought to [0, 1], m their mean and s^2 their variance, they are worth n = B m (1 - m)/s^2 draws of 0 and 1
    (Korn and Graubard 1998). No law on [0, 1] has more variance than m (1 - m). Few terms may not show the rare large ones, so
    s^2 is taken as if four more terms had the variance m (1 - m); n is at most the number of responses, and is multiplied by
    (t_inf/t_{B-1})^2 for the degrees of freedom behind s. So rare events get honest limits, and where many terms vary the
    limits are Student's t.
    """
    size, span = terms.size, most - least
    if span <= 0.0:
        return least, most
    scaled = np.clip((terms - least) / span, 0.0, 1.0)
    mean = float(scaled.mean())
    spread = mean * (1.0 - mean)
    variance = (float(((scaled - mean) ** 2).sum()) + UNSEEN * spread) / (size - 1.0 + UNSEEN)
    effective = min(size * spread / variance, max(responses, size)) if spread > ROUNDING else size
    tail = (1.0 - level) / 2.0
    effective *= float(stdtrit(INFINITE, tail) / stdtrit(size - 1, tail)) ** 2
    successes, failures = mean * effective, (1.0 - mean) * effective
    low = betaincinv(successes, failures + 1.0, tail) if successes > 0.0 else 0.0
    high = betaincinv(successes + 1.0, failures, 1.0 - tail) if failures > 0.0 else 1.0
    return least + span * float(low), least + span * float(high)


def ratio_limit(numerator: Array, denominator: Array, level: float, above: bool) -> float:
    """Return the upper or the lower of two-sided limits of E[numerator]/E[denominator] from independent pairs (B,).

    Fieller's: the ratios r for which the mean of numerator - r denominator is not so far from 0, by Student's t, on the side that
    matters. Infinite, of either sign, where the denominator's mean is not surely above 0.
    """
    size = numerator.size
    square = float(stdtrit(size - 1, (1.0 + level) / 2.0)) ** 2 / size
    top, bottom = float(numerator.mean()), float(denominator.mean())
    covariance = np.cov(numerator, denominator) * square
    a = bottom**2 - covariance[1, 1]
    if bottom <= 0.0 or a <= 0.0:
        return np.inf if above else -np.inf
    b = top * bottom - covariance[0, 1]
    c = top**2 - covariance[0, 0]
    root = np.sqrt(max(b**2 - a * c, 0.0))
    return float((b + root if above else b - root) / a)
