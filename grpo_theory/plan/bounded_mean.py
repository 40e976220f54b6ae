"""Confidence limits of a mean over prompts of bounded terms, and of a ratio of two."""

import numpy as np
from scipy.special import betaincinv, stdtrit

from grpo_theory.arrays import Array
from grpo_theory.validation import ROUNDING

UNSEEN = 4.0
"""Prompts that were not drawn and might have been at either end: Agresti and Coull's (1998) four."""
INFINITE = 1e12
"""Degrees of freedom at which Student's t is normal."""


def mean_limits(
    terms: Array, least: float, most: float, responses: int, level: float, prompts: Array | float = 1.0
) -> tuple[Array, Array]:
    """Return two-sided limits of the mean of independent terms in [least, most]: Clopper and Pearson's at an effective size.

    With the terms brought to [0, 1], m their mean and s^2 their variance, they are worth n = B m (1 - m)/s^2 draws of 0 and 1
    (Korn and Graubard 1998). No law on [0, 1] has more variance than m (1 - m). Few terms may not show the rare large ones, so
    s^2 is taken as if four more terms had the variance m (1 - m); n is at most the number of responses, and is multiplied by
    (t_inf/t_{B-1})^2 for the degrees of freedom behind s. So rare events get honest limits, and where many terms vary the
    limits are Student's t.

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

    Fieller's: the ratios r for which the mean of numerator - r denominator is not so far from 0, by Student's t, on the side that
    matters. Infinite, of either sign, where the denominator's mean is not surely above 0. `prompts` as of `mean_limits`.
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
