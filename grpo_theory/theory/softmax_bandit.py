"""How fast exact gradient ascent closes the gap of a softmax bandit (R6; docs/derivations.md, section 30).

One prompt with K responses, a logit for each, rewards in [0, 1], steps z + eta grad J from equal logits.
"""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.theory.curvature import GREATEST_CURVATURE
from grpo_theory.validation import as_count, as_positive, as_real_array


def softmax_gap_bound(n_responses: int, step: float) -> float:
    """Return b such that the gap is at most b/t after t updates, for every t and all rewards in [0, 1].

    Theorem. b = K (K - 1)/[eta (1 - eta beta/2)] for a step eta < 2/beta, with beta = 1/(3 sqrt 3) the smoothness of J. The proof
    has three parts. An update gains at least eta (1 - eta beta/2) ||grad||^2. The slope has ||grad||^2 >= K/(K-1) pi(a*)^2 gap^2.
    The probability pi(a*) never falls below 1/K.

    Raises
    ------
    ValueError
        If the step is 2/beta or longer, where an update need not gain.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.theory.softmax_gap_bound(3, step=0.1), 1), round(gt.theory.softmax_gap_limit(3, step=0.1), 1)
    (60.6, 6.7)
    """
    count, step = as_count("n_responses", n_responses, 2), as_positive("step", step)
    share = 1.0 - 0.5 * step * GREATEST_CURVATURE
    if share <= 0.0:
        raise ValueError(f"step must be below 2/beta = {2.0 / GREATEST_CURVATURE:.4g}, got {step:g}")
    return count * (count - 1.0) / (step * share)


def softmax_gap_limit(n_responses: int, step: float, n_best: int = 1) -> float:
    """Return c such that the gap falls as c/t, for all rewards: c = m (K - m)/(K eta) if m responses share the best reward.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.theory.softmax_gap_limit(3, step=0.1), 1), round(gt.theory.softmax_gap_limit(3, step=0.1, n_best=2), 1)
    (6.7, 6.7)
    """
    count, best = as_count("n_responses", n_responses, 2), as_count("n_best", n_best)
    if best >= count:
        raise ValueError(f"n_best must be below n_responses, got {best} of {count}")
    return best * (count - best) / (count * as_positive("step", step))


def divided_gap_limit(shortfalls: ArrayLike, step: float) -> float:
    """Return c such that the gap falls as c/t^2 if the gradient is divided by the reward's standard deviation.

    c = 4 (1 - 1/K)^2 mean(delta)/eta^2.

    Parameters
    ----------
    shortfalls : array_like, shape (K - 1,)
        By how much the other responses' rewards fall short of the best, positive.
    step : float

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.theory.divided_gap_limit([0.5, 0.5], step=0.1), 2)
    88.89
    """
    short: Array = as_real_array("shortfalls", shortfalls, 1)
    if short.size == 0 or (short <= 0.0).any():
        raise ValueError(f"shortfalls must be positive, one for each response but the best, got {short.tolist()}")
    share = short.size / (short.size + 1.0)
    return float(4.0 * share**2 * np.mean(short) / as_positive("step", step) ** 2)
