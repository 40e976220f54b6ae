"""Slope and curvature of a prompt's success probability (N1 to N3, R6; docs/derivations.md, section 30).

Logits are X theta with features X (K, d), some of the K responses are correct, and p is the probability of a correct one.  All
bounds are in units of the features: X = ||X|| is their spectral norm, V = p (1 - p) the variance of the reward.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from grpo_theory.arrays import Array
from grpo_theory.validation import as_array, as_count, as_real_array, check_interior, check_shape

GREATEST_SLOPE = float(np.sqrt(2.0) / 4.0)
"""||grad p|| <= sqrt(2) V X <= this times X: attained by two responses that are equally likely."""
GREATEST_CURVATURE = float(1.0 / (3.0 * np.sqrt(3.0)))
"""||Hess p|| <= this times X^2: attained by two responses at p = (3 - sqrt 3)/6."""
GREATEST_LOCAL_CURVATURE = 0.587283826851592
"""||Hess p|| <= this times X^2 sqrt V within the radius sqrt(V)/X: attained by two responses at p = 0.1025."""
_STEEPEST = (3.0 - np.sqrt(3.0)) / 6.0
"""Where p (1 - p) |1 - 2p| is largest; so it is at 1 less this."""


class _Sides(NamedTuple):
    """The correct and the wrong responses: their probabilities given the side, and how likely either side is."""

    correct: Array
    wrong: Array
    success: float
    failure: float


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
    sides, x = _sides(probabilities, correct), _features(probabilities, features)
    return np.asarray(sides.success * sides.failure * (x.T @ (sides.correct - sides.wrong)))


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
    sides, x = _sides(probabilities, correct), _features(probabilities, features)
    apart = x.T @ (sides.correct - sides.wrong)
    spread = _covariance(sides.correct, x) - _covariance(sides.wrong, x)
    return np.asarray(sides.success * sides.failure * (spread + (sides.failure - sides.success) * np.outer(apart, apart)))


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
    p = _interior(p)
    least = 0.5 if as_count("n_responses", n_responses, 2) > 2 else 0.0
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
    p, radius = np.broadcast_arrays(_interior(p), as_real_array("radius", radius, np.ndim(radius)))
    if (radius < 0.0).any():
        raise ValueError(f"radius must not be negative, got {radius.min():g}")
    centre, reach = logit(p), np.sqrt(2.0) * radius
    bound = np.maximum(*(curvature_bound(expit(centre + sign * reach), n_responses) for sign in (-1.0, 1.0)))
    for peak in (_STEEPEST, 0.5, 1.0 - _STEEPEST):
        within = np.abs(logit(peak) - centre) <= reach
        bound = np.where(within, np.maximum(bound, curvature_bound(peak, n_responses)), bound)
    return np.asarray(bound)


def _sides(probabilities: ArrayLike, correct: ArrayLike) -> _Sides:
    pi = as_real_array("probabilities", probabilities, 1)
    right = as_array("correct", correct)
    check_shape("correct", right, pi.shape, "(K,), one entry for each response")
    if right.dtype != np.bool_ or not right.any() or right.all():
        raise ValueError(f"correct must be true for some responses and false for others, got {right.tolist()}")
    if (pi <= 0.0).any() or abs(pi.sum() - 1.0) > 1e-9:
        raise ValueError(f"probabilities must be positive with sum 1, got {pi.tolist()}")
    success, failure = float(pi[right].sum()), float(pi[~right].sum())
    return _Sides(np.where(right, pi, 0.0) / success, np.where(right, 0.0, pi) / failure, success, failure)


def _features(probabilities: ArrayLike, features: ArrayLike) -> Array:
    x = as_real_array("features", features, 2)
    check_shape("features", x, (np.size(probabilities), x.shape[1]), "(K, d), one row for each response")
    return x


def _covariance(shares: Array, features: Array) -> Array:
    centred = features - shares @ features
    return np.asarray(centred.T @ (shares[:, None] * centred))


def _interior(p: ArrayLike) -> Array:
    p = as_real_array("p", p, np.ndim(p))
    check_interior("p", p)
    return p
