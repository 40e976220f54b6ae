"""The chance that a group contains a success, or both a success and a failure, which is a signal."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import Array, as_count, as_fraction, as_numbers, check_within


def chance_of_success(rates: ArrayLike, responses: int) -> Array:
    """Return the chance that a group contains at least one success, 1 - (1-p)^n, of the shape of `rates`.

    Parameters
    ----------
    rates : array_like
        Success rates p, in [0, 1].
    responses : int
        n, at least 1.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> chance_of_success([0.5, 0.0], 2)
    array([0.75, 0.  ])
    """
    p = as_numbers("rates", rates)
    check_within("rates", p, 0.0, 1.0)
    if np.isnan(p).any():
        raise ValueError("rates must be numbers from 0 to 1, got nan")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(as_count("responses", responses) * np.log1p(-p)))


def chance_of_signal(rates: ArrayLike, group_size: int) -> Array:
    """Return the chance that a group has a signal (both rewards), 1 - (1-p)^G - p^G, of the shape of `rates`.

    Parameters
    ----------
    rates : array_like
        Success rates p, in [0, 1].
    group_size : int
        G, at least 1.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.plan.chance_of_signal([0.01, 0.1, 0.5], 8).round(3).tolist()
    [0.077, 0.57, 0.992]
    """
    p = as_numbers("rates", rates)
    return np.asarray(np.maximum(chance_of_success(p, group_size) - p ** float(group_size), 0.0))


def most_success(prompts: int, level: float = 0.95) -> float:
    """Return the upper limit of the mean success rate where no response of any prompt succeeded.

    The probability that no response of B independent prompts succeeds is (E (1-p)^n)^B. This is at most (1 - E p)^B, and equal
    if prompts are either always or never solved. So the limit 1 - (1-level)^(1/B) holds whatever the law of success rates, and
    n cannot improve it. It limits the share of groups of at most n responses with a signal, too.

    Parameters
    ----------
    prompts : int
        B.
    level : float, default 0.95

    Returns
    -------
    float

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.plan.most_success(prompts=100), 3)
    0.03
    """
    return float(-np.expm1(np.log1p(-as_fraction("level", level)) / as_count("prompts", prompts)))
