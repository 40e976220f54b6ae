"""Bootstrap-t over prompts for linear combinations of the error's components."""

from math import floor
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.simulate.streams import Rng, as_seed_sequence
from grpo_theory.validation import as_count

FAR = 1e8
"""The size of a studentised statistic whose standard error is 0, as of resamples of one prompt alone."""


class Resamples(NamedTuple):
    """How often each prompt is drawn, and which order statistics bound the middle.

    Attributes
    ----------
    counts : ndarray, shape (R, B)
    rank : int
        The number of statistics in each tail, the quantile included.
    """

    counts: Array
    rank: int


def draw_resamples(size: int, resamples: int, level: float, rng: Rng | None) -> Resamples:
    """Draw `size` prompts with replacement, so many times; raise ValueError if these are too few for the level."""
    resamples = as_count("resamples", resamples)
    rank = floor((resamples + 1) * (1.0 - level) / 2.0 + 1e-9)
    if rank < 1:
        raise ValueError(f"resamples must be at least 2/(1 - level) - 1 = {2.0 / (1.0 - level) - 1.0:.0f}, got {resamples}")
    counts = np.random.default_rng(as_seed_sequence(rng)).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    return Resamples(counts.astype(np.float64), rank)


def bootstrap_quantiles(terms: PromptTerms, weights: Array, resamples: Resamples) -> tuple[Array, Array]:
    """Return the two quantiles of (estimate* - mean*)/se* for a combination of c1, c2 and c3 with weights (..., 3), shape (...).

    They are kept on their own sides of 0, so that limits made of them have the estimate between them. All datasets along the
    leading axes share the resamples; statistics of different datasets are uncorrelated given these.
    """
    last = len(resamples.counts) - resamples.rank
    quantiles = np.empty((*weights.shape[:-1], 2))
    for i in np.ndindex(weights.shape[:-1]):
        found = _statistics(PromptTerms(*(term[i] for term in terms)), weights[i], resamples.counts)
        quantiles[i] = np.partition(found, (resamples.rank - 1, last))[[resamples.rank - 1, last]]
    return np.minimum(quantiles[..., 0], 0.0), np.maximum(quantiles[..., 1], 0.0)


def _statistics(terms: PromptTerms, weights: Array, counts: Array) -> Array:
    """Return the studentised statistics of one dataset, shape (R,).

    A resample can hold a prompt twice. So the resampled mean of products of different prompts has, as its own mean, the mean of
    all products of the data, those of a prompt with itself included.
    """
    size = counts.shape[1]
    linear = weights[0] * terms.power + weights[1] * terms.c2 + weights[2] * terms.c3
    gram = terms.gradients @ terms.gradients.T
    with_others = counts @ gram - np.diagonal(gram)
    product = (counts * with_others).sum(axis=1) / (size * (size - 1.0))
    excess = (counts @ linear) / size - weights[0] * product - (linear.mean() - weights[0] * gram.mean())
    influence = linear - 2.0 * weights[0] / (size - 2.0) * with_others
    influence -= (counts * influence).sum(axis=1, keepdims=True) / size
    error = np.sqrt((counts * influence**2).sum(axis=1) / (size * (size - 1.0)))
    return np.divide(excess, error, out=np.copysign(FAR, excess), where=error > 0.0)
