"""What one exact gradient step on one prompt gains at least (N5, N6; docs/derivations.md, section 31).

J = p is the probability of the one right answer under a log-linear policy whose features have the spectral norm X.  The plain
step is theta + (s/X^2) grad J, the divided step theta + (s/X^2) grad J/sqrt(V), with V = p(1 - p).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from grpo_theory.arrays import Array
from grpo_theory.validation import as_positive, as_real_array, check_within

_PEAKS = 2.0 * np.arctanh([(np.sqrt(13.0) - 1.0) / 6.0, 1.0 / np.sqrt(3.0)])
"""The log odds at which the bound of the downward curvature has its two local maxima."""
_LOG_ODDS = np.linspace(-16.0, 16.0, 3201)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def downward_curvature(success: ArrayLike) -> Array:
    """Return an upper bound of -v' Hess J v/X^2 over unit vectors v, features and probabilities of the wrong answers.

    It is V max(1/2, x + 1/2, 2x) with x = 2p - 1: the half of `curvature_bound` that costs an ascent something.

    Parameters
    ----------
    success : array_like
        p, in [0, 1].

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.downward_curvature([0.1, 0.5, 0.9]).round(3).tolist()
    [0.045, 0.125, 0.144]
    """
    p = as_real_array("success", success, np.ndim(success))
    check_within("success", p, 0.0, 1.0)
    return _downward(p, 1.0 - p)


def _downward(p: Array, q: Array) -> Array:
    x = p - q
    return np.asarray(p * q * np.maximum(2.0 * x, np.maximum(x, 0.0) + 0.5))


def plain_gain_constant(step: float) -> float:
    """Return c such that J(theta + (s/X^2) grad J) - J(theta) >= c ||grad J||^2/X^2, at every policy.

    The printed constant is 1/2 at s = 1 (Theorem 3.1). The constant c is positive for s below 6 sqrt 3. Its greatest value is 3
    sqrt 3/2, at s = 3 sqrt 3.

    Parameters
    ----------
    step : float
        s, positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.plain_gain_constant(1.0) >= 0.5
    True
    """
    return _least_gain(as_positive("step", step), 0.0)


def divided_gain_constant(step: float) -> float:
    """Return c such that J(theta + (s/X^2) grad J/sqrt V) - J(theta) >= c ||grad J||^2/(X^2 sqrt V), at every policy.

    The printed constant is 3/16 at s = 1/2 (Theorem 3.2).

    Parameters
    ----------
    step : float
        s, positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.divided_gain_constant(0.5) >= 3 / 16
    True
    """
    return _least_gain(as_positive("step", step), 0.5)


def _least_gain(step: float, power: float) -> float:
    """Integrate the curvature bound along the step, whose log odds move by at most 2 s V^(1 - power), and take the worst p."""
    variance = expit(_LOG_ODDS) * expit(-_LOG_ODDS)
    reach = 2.0 * step * variance ** (1.0 - power)
    share = (1.0 + _NODES) / 2.0
    loss = np.zeros_like(variance)
    for t, weight in zip(share, _WEIGHTS / 2.0, strict=True):
        loss += weight * (1.0 - t) * _greatest_downward(_LOG_ODDS - t * reach, _LOG_ODDS + t * reach)
    return float((step * (1.0 - step * loss / variance**power)).min())


def _greatest_downward(low: Array, high: Array) -> Array:
    """Return the greatest downward curvature between two log odds: at an end or at a peak between them."""
    log_odds = [low, high, *(np.clip(peak, low, high) for peak in _PEAKS)]
    return np.asarray(np.max([_downward(expit(u), expit(-u)) for u in log_odds], axis=0))
