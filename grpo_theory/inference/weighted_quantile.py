"""Quantiles of weighted sums of chi-squares for many sets of weights at once."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, logit

Array = NDArray[np.float64]

_NODES = 200
_REACH = 9.0
_NEWTON_STEPS = 60
_BISECTIONS = 50
_EPSILON = float(np.finfo(float).eps)


def weighted_chi_square_ppf(weights: Array, level: float) -> Array:
    """Return the quantile of sum_k w_k chi^2_1 for each set of weights (..., r), shape (...).

    The same inversion as `grpo_theory.WeightedChiSquare`, with a fixed number of nodes, for all sets together: Newton's method
    from the gamma law with the same mean and variance (Satterthwaite 1946).  NaN where a weight is NaN or all are 0.

    Parameters
    ----------
    weights : ndarray, shape (..., r)
        Not negative.
    level : float
        In (0, 1).  The relative error is below 1e-9 for levels down to 0.01.
    """
    flat = weights.reshape(-1, weights.shape[-1])
    found = np.full(len(flat), np.nan)
    usable = np.isfinite(flat).all(axis=1) & (flat > 0.0).any(axis=1)
    scale = flat[usable].max(axis=1, keepdims=True)
    if usable.any():
        found[usable] = scale[:, 0] * _quantile(flat[usable] / scale, level)
    return found.reshape(weights.shape[:-1])


def _quantile(weights: Array, level: float) -> Array:
    """Quantiles for weights (R, r) with largest entry 1."""
    total, squares = weights.sum(axis=1), (weights**2).sum(axis=1)
    quantile = 2.0 * squares / total * gammaincinv(total**2 / (2.0 * squares), level)
    for _ in range(_NEWTON_STEPS):
        tail, density = _tail_and_density(weights, quantile)
        # Far out both are rounding, and the step is the longest one towards the middle.
        tail, density = np.clip(tail, _EPSILON, 1.0 - _EPSILON), np.maximum(density, np.finfo(float).tiny)
        # The logit of the distribution function is nearly straight in log q for small q and in q for large.
        step = (logit(level) + logit(tail)) * tail * (1.0 - tail) / (quantile * density)
        moved = quantile * np.exp(np.clip(step, -np.log(2.0), np.log(2.0)))
        done = np.abs(moved - quantile).max() <= 1e-12 * quantile.max()
        quantile = moved
        if done:
            break
    return quantile


def _tail_and_density(weights: Array, quantile: Array) -> tuple[Array, Array]:
    """P(Q > q) and the density at q, by a parabola through the saddlepoint, shape (R,) each.

    Below the mean the saddlepoint left of the pole at 0 is taken, and the residue there added: to its right the path runs past
    the small weights' poles, where the integrand can be many powers of ten too large.
    """
    lower = quantile < weights.sum(axis=1)
    # There the slope at low is negative, for sum_k w_k/(1 + 2 w_k |t|) - 1/t <= (r/2 + 1)/|t|.
    low = np.where(lower, -(weights.shape[1] / 2.0 + 1.0) / quantile, 0.0)
    high = np.where(lower, 0.0, 0.5)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        slope = (weights / (1.0 - 2.0 * weights * middle[:, None])).sum(axis=1) - 1.0 / middle - quantile
        low, high = np.where(slope < 0.0, middle, low), np.where(slope < 0.0, high, middle)
    root = (low + high) / 2.0
    ratio = weights / (1.0 - 2.0 * weights * root[:, None])
    second = 2.0 * (ratio**2).sum(axis=1) + root**-2.0
    third = 8.0 * (ratio**3).sum(axis=1) - 2.0 * root**-3.0
    # Straighter than steepest descent at the root, which is that of the large weights: the poles of the small ones lie beyond.
    bend = np.maximum(third / (20.0 * second), 0.03 * np.sqrt(second))[:, None]
    # Nodes at equal distances in u, offsets proportional to sinh u: dense near the root, and far enough for small quantiles.
    u = np.linspace(0.0, _REACH, _NODES)
    scale = 1.0 / np.sqrt(second)[:, None]
    offsets = scale * np.sinh(u)
    t = root[:, None] + 1j * offsets + bend * offsets**2
    exponent = -0.5 * sum(np.log(1.0 - 2.0 * column[:, None] * t) for column in weights.T) - t * quantile[:, None]
    density = np.exp(exponent) * (1.0 - 2.0j * bend * offsets) * scale * np.cosh(u)
    tail = density / t
    rule = np.full(_NODES, u[1] / np.pi)
    rule[0] /= 2.0
    return tail.real @ rule + lower, density.real @ rule
