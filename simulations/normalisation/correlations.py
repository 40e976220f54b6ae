"""Correlations of variances with curvatures: Pearson's and Spearman's, with weights, for resampled prompts too."""

import numpy as np

from grpo_theory.validation import Array


def correlation(a: Array, b: Array, weights: Array) -> Array:
    """Return Pearson's correlation along the last axis, with weights that add up to the same; 0 where one does not vary."""
    total = weights.sum(axis=-1, keepdims=True)
    a, b = (x - (weights * x).sum(axis=-1, keepdims=True) / total for x in (a, b))
    scale = np.sqrt((weights * a**2).sum(axis=-1) * (weights * b**2).sum(axis=-1))
    return np.asarray(np.divide((weights * a * b).sum(axis=-1), scale, out=np.zeros_like(scale), where=scale > 0.0))


def ranks(x: Array, weights: Array) -> Array:
    """Return mid-ranks along the last axis, where each value counts as often as its weight says, but for a constant."""
    shape = np.broadcast_shapes(x.shape, weights.shape)
    order = np.argsort(np.broadcast_to(x, shape), axis=-1)
    sorted_weights = np.take_along_axis(np.broadcast_to(weights, shape), order, axis=-1)
    middles = np.empty(shape)
    np.put_along_axis(middles, order, np.cumsum(sorted_weights, axis=-1) - sorted_weights / 2.0, axis=-1)
    return middles


def rank_correlation(a: Array, b: Array, weights: Array) -> Array:
    """Return Spearman's correlation along the last axis, with weights."""
    return correlation(ranks(a, weights), ranks(b, weights), weights)


KINDS = {"Pearson": correlation, "Spearman": rank_correlation}
