"""Slope and curvature of a prompt's success probability (N1 to N3, R6; docs/derivations.md, section 30).

Logits are X theta with features X (K, d), some of the K responses are correct, and p is the probability of a correct one.  All
bounds are in units of the features: X = ||X|| is their spectral norm, V = p (1 - p) the variance of the reward.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from grpo_theory.theory.finite_group import interior
from grpo_theory.validation import Array, as_array, as_count, as_positive, as_real_array, check_shape, check_within

GREATEST_SLOPE = float(np.sqrt(2.0) / 4.0)
"""||grad p|| <= sqrt(2) V X <= this times X: attained by two responses that are equally likely."""
GREATEST_CURVATURE = float(1.0 / (3.0 * np.sqrt(3.0)))
"""||Hess p|| <= this times X^2: attained by two responses at p = (3 - sqrt 3)/6."""
GREATEST_LOCAL_CURVATURE = 0.587283826851592
"""||Hess p|| <= this times X^2 sqrt V within the radius sqrt(V)/X: attained by two responses at p = 0.1025."""
_STEEPEST = (3.0 - np.sqrt(3.0)) / 6.0
"""Where p (1 - p) |1 - 2p| is largest; so it is at 1 less this."""


def success_gradient(probabilities: ArrayLike, correct: ArrayLike, features: ArrayLike) -> Array:
    """Return the gradient of the success probability, shape (d,).

    Theorem.  grad p = V X'(pi+ - pi-), with pi+ and pi- the policy given a correct and given a wrong response.

    Parameters
    ----------
    probabilities : array_like, shape (K,)
        The policy's, positive, with sum 1.
    correct : array_like of bool, shape (K,)
        Which responses have the reward 1; at least one, and not all.
    features : array_like, shape (K, d)

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> gt.theory.success_gradient([0.5, 0.3, 0.2], [True, False, False], np.eye(3)).round(3).tolist()
    [0.25, -0.15, -0.1]
    """
    right, wrong, (p, q), x = _sides(probabilities, correct, features)
    # grad p = E[(r - p) x] = V (E+ x - E- x), since E[(r - p) f] = V (E+ f - E- f) for every f
    # (docs/derivations.md, section 30).
    return np.asarray(p * q * (x.T @ (right - wrong)))


def success_hessian(probabilities: ArrayLike, correct: ArrayLike, features: ArrayLike) -> Array:
    """Return the Hessian of the success probability, shape (d, d).

    Theorem.  Hess p = V {Cov+ - Cov- + (1 - 2p) m m'}. Cov+ is the covariance of the features given a correct response, and Cov-
    given a wrong one.  The difference of the two means is m.  The arguments are those of `success_gradient`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> found = gt.theory.success_hessian([0.5, 0.3, 0.2], [True, False, False], np.eye(3))
    >>> bool(np.allclose(found, found.T)), bool(np.allclose(found.sum(axis=0), 0.0))
    (True, True)
    """
    right, wrong, (p, q), x = _sides(probabilities, correct, features)
    apart = x.T @ (right - wrong)
    # v' Hess p v = V [Var+ - Var- + ((1 - p)^2 - p^2) (v'm)^2], and (1 - p)^2 - p^2 = 1 - 2p (docs/derivations.md, section 30).
    spread = _covariance(right, x) - _covariance(wrong, x)
    return np.asarray(p * q * (spread + (q - p) * np.outer(apart, apart)))


def curvature_bound(p: ArrayLike, n_responses: int) -> Array:
    """Return the most that ||Hess p||/X^2 can be at a success probability, of the shape of p.

    Theorem.  ||Hess p|| <= X^2 V max(1/2, 2 |1 - 2p|), and without the 1/2 for two responses.  No function of p alone is smaller:
    features and policies come as near as one likes, with one correct response as with several.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.curvature_bound([0.1, 0.5], n_responses=4).round(3).tolist()
    [0.144, 0.125]
    """
    p = interior("p", p)
    least = 0.5 if as_count("n_responses", n_responses, 2) > 2 else 0.0
    # Var+ + c delta^2 <= max(1/2, 2 c) ||X v||^2 with c = 1 - 2p; the other sign has the sides exchanged and -c
    # (N1; docs/derivations.md, section 30).
    return np.asarray(p * (1.0 - p) * np.maximum(least, 2.0 * np.abs(1.0 - 2.0 * p)))


def local_curvature_bound(p: ArrayLike, radius: ArrayLike, n_responses: int) -> Array:
    """Return the most that ||Hess p||/X^2 can be within a radius of a parameter with a success probability.

    Theorem.  logit p is sqrt(2) X-Lipschitz in theta, because its gradient is X'(pi+ - pi-).  So the success probability within
    the radius has a logit at most sqrt(2) X radius away, and there `curvature_bound` holds.  Two responses attain it.

    Parameters
    ----------
    p : array_like
        In (0, 1).
    radius : array_like
        In units of 1/X, not negative; broadcast with p.
    n_responses : int

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.theory.local_curvature_bound(0.1, [0.0, 0.5], n_responses=4).round(3).tolist()
    [0.144, 0.19]
    """
    p, radius = np.broadcast_arrays(interior("p", p), as_real_array("radius", radius, np.ndim(radius)))
    if (radius < 0.0).any():
        raise ValueError(f"radius must not be negative, got {radius.min():g}")
    # |logit p' - logit p| <= sqrt(2) X |theta' - theta| (N3; docs/derivations.md, section 30).
    centre, reach = logit(p), np.sqrt(2.0) * radius
    bound = np.maximum(*(curvature_bound(expit(centre + sign * reach), n_responses) for sign in (-1.0, 1.0)))
    # d[V (1 - 2p)]/dp = 6 p^2 - 6 p + 1 is 0 at p = (3 -+ sqrt 3)/6, and V/2 has its peak at 1/2.
    for peak in (_STEEPEST, 0.5, 1.0 - _STEEPEST):
        within = np.abs(logit(peak) - centre) <= reach
        bound = np.where(within, np.maximum(bound, curvature_bound(peak, n_responses)), bound)
    return np.asarray(bound)


def _sides(probabilities: ArrayLike, correct: ArrayLike, features: ArrayLike) -> tuple[Array, Array, tuple[float, float], Array]:
    """Return the probabilities given a correct and given a wrong response, how likely these are, and the features."""
    pi = as_real_array("probabilities", probabilities, 1)
    right = as_array("correct", correct)
    check_shape("correct", right, pi.shape, "(K,), one entry for each response")
    if right.dtype != np.bool_ or not right.any() or right.all():
        raise ValueError(f"correct must be true for some responses and false for others, got {right.tolist()}")
    if (pi <= 0.0).any() or abs(pi.sum() - 1.0) > 1e-9:
        raise ValueError(f"probabilities must be positive with sum 1, got {pi.tolist()}")
    x = as_real_array("features", features, 2)
    check_shape("features", x, (pi.size, x.shape[1]), "(K, d), one row for each response")
    chances = float(pi[right].sum()), float(pi[~right].sum())
    return np.where(right, pi, 0.0) / chances[0], np.where(right, 0.0, pi) / chances[1], chances, x


def _covariance(shares: Array, features: Array) -> Array:
    centred = features - shares @ features
    return np.asarray(centred.T @ (shares[:, None] * centred))


# With x = tanh(u/2) and V = (1 - x^2)/4: d[V (x + 1/2)]/dx = 0 is 3 x^2 + x = 1, and d[V 2 x]/dx = 0 is 3 x^2 = 1.
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
    # -v' Hess v = V [x (v_a - m)^2 + r^2] with (v_a - m)^2 <= 2 (1 - r^2) and r^2 <= 1/2, linear in r^2
    # (docs/derivations.md, section 31).
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
    # gain >= (s ||grad J||^2/(X^2 D)) [1 - (s/D) int_0^1 (1 - t) c(u, 2 s t V/D) dt], D = V^power
    # (docs/derivations.md, section 31).
    reach = 2.0 * step * variance ** (1.0 - power)
    share = (1.0 + _NODES) / 2.0
    loss = np.zeros_like(variance)
    for t, weight in zip(share, _WEIGHTS / 2.0, strict=True):
        # The greatest downward curvature between two log odds is at an end, or at a peak between them.
        low, high = _LOG_ODDS - t * reach, _LOG_ODDS + t * reach
        log_odds = [low, high, *(np.clip(peak, low, high) for peak in _PEAKS)]
        loss += weight * (1.0 - t) * np.max([_downward(expit(u), expit(-u)) for u in log_odds], axis=0)
    return float((step * (1.0 - step * loss / variance**power)).min())


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
    # Delta_{t+1} <= Delta_t - a Delta_t^2 with a = eta (1 - eta beta/2)/(K (K - 1)), so Delta_t <= 1/(a t)
    # (docs/derivations.md, section 30.1).
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
    # d(1/Delta)/dt = 1/(K - m) + 1/m = K/(m (K - m)), in time eta t (docs/derivations.md, section 30.1).
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
    # d(Delta^(-1/2))/dt = (K/(K - 1))/(2 sqrt(mean delta)), in time eta t (docs/derivations.md, section 30.1).
    share = short.size / (short.size + 1.0)
    return float(4.0 * share**2 * np.mean(short) / as_positive("step", step) ** 2)
