"""Limits of a ratio of two estimated numbers, by the test that each ratio passes or fails (Fieller 1954)."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_numbers


def quotient_limits(
    numerator: ArrayLike,
    denominator: ArrayLike,
    variances: tuple[ArrayLike, ArrayLike, ArrayLike],
    lower_quantile: ArrayLike,
    upper_quantile: ArrayLike,
) -> tuple[Array, Array]:
    """Return the least and the greatest of the ratios r >= 0 with lower <= (n - r d)/se(r) <= upper, n and d not below 0.

    se(r)^2 = v_nn - 2 r v_nd + r^2 v_dd. low = 0 where n <= upper sqrt(v_nn), and high = inf where d <= -lower sqrt(v_dd).
    [low, high] is the hull of these ratios (docs/derivations.md, section 10).

    Parameters
    ----------
    numerator, denominator : array_like, broadcast to (...)
        n and d, at least 0.
    variances : tuple of array_like, broadcast to (...)
        v_nn, v_nd and v_dd.
    lower_quantile, upper_quantile : array_like, broadcast to (...)
        lower <= 0 <= upper.
    """
    n, d, v_nn, v_nd, v_dd = (as_numbers("each part of a quotient", value) for value in (numerator, denominator, *variances))
    # Fourth powers follow, so all is taken in a unit that makes the largest about 1: a power of 2, which changes no digit.
    _, unit = np.frexp(np.maximum(np.maximum(np.abs(n), np.abs(d)), np.sqrt(np.maximum(np.abs(v_nn), np.abs(v_dd)))))
    n, d = (np.ldexp(value, -unit) for value in (n, d))
    v_nn, v_nd, v_dd = (np.ldexp(value, -2 * unit) for value in (v_nn, v_nd, v_dd))

    def quadratic(quantile: ArrayLike) -> tuple[Array, Array, Array]:
        t = as_numbers("a quantile", quantile)
        a, b, c = d**2 - t**2 * v_dd, d * n - t**2 * v_nd, n**2 - t**2 * v_nn
        return a, b + np.sqrt(np.maximum(b**2 - a * c, 0.0)), c

    _, root, c = quadratic(upper_quantile)
    low = np.divide(c, root, out=np.zeros_like(root), where=(c > 0.0) & (root > 0.0))
    a, root, _ = quadratic(lower_quantile)
    high = np.divide(root, a, out=np.full_like(root, np.inf), where=a > 0.0)
    return low, high
