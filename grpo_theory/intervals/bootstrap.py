"""Bootstrap-t over prompts for linear combinations of the error's components."""

from math import floor
from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, F2, function_value
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence
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
    """Return the two quantiles of (estimate* - mean*)/se* for L combinations of c1, c2 and c3, both of shape (..., L).

    The weights (..., L, 3) may differ from dataset to dataset. The quantiles are kept on their own sides of 0, so that limits
    made of them have the estimate between them. All datasets along the leading axes share the resamples; statistics of different
    datasets are uncorrelated given these.
    """
    last = len(resamples.counts) - resamples.rank
    ranks = [resamples.rank - 1, last]
    counts = np.ascontiguousarray(resamples.counts.T)
    leading = terms.power.shape[:-1]
    quantiles = np.empty((*leading, weights.shape[-2], 2))
    for i in np.ndindex(leading):
        statistics = _statistics(PromptTerms(*(term[i] for term in terms)), weights[i], counts)
        quantiles[i] = np.partition(statistics, ranks, axis=-1)[:, ranks]
    return np.minimum(quantiles[..., 0], 0.0), np.maximum(quantiles[..., 1], 0.0)


def _statistics(terms: PromptTerms, weights: Array, counts: Array) -> Array:
    """Return the studentised statistics (L, R) of one dataset, from the numbers of times (B, R) that each prompt is drawn.

    A resample can hold a prompt twice. So the resampled mean of products of different prompts is centred at the mean of all
    products of the data. That mean includes the products of a prompt with itself.
    """
    u, size = terms.gradients, len(counts)
    with_others = np.linalg.multi_dot([u, u.T, counts]) - (u**2).sum(axis=1, keepdims=True)
    total = u.sum(axis=0)
    linear = weights @ np.stack([terms.power, terms.c2, terms.c3])
    means = linear.mean(axis=1) - weights[:, 0] * (total @ total) / size**2
    statistics = np.empty((len(weights), counts.shape[1]))
    studentised(counts, with_others, linear, weights[:, 0].copy(), means, statistics)
    return statistics


@function_value(numba.void(F2, F2, F2, F1, F1, F2))
def studentised(counts, with_others, linear, of_product, means, statistics):
    """Fill in the statistics (L, R) of resamples.

    Parameters
    ----------
    counts, with_others : ndarray, shape (B, R)
        How often each prompt is drawn, and the product of its gradient estimate with those of all others drawn.
    linear : ndarray, shape (L, B)
        The prompts' terms of each combination.
    of_product, means : ndarray, shape (L,)
        By how much of the products' mean a combination falls, and what its own mean over resamples is.
    """
    size, n = counts.shape
    # Resamples are the innermost loop everywhere: they lie side by side in memory, and the compiler makes vectors of them.
    mean, product, power = np.empty(n), np.empty(n), np.empty(n)
    for k in range(len(means)):
        slope = 2.0 * of_product[k] / (size - 2.0)
        mean[:], product[:], power[:] = 0.0, 0.0, 0.0
        for b in range(size):
            count, others, term = counts[b], with_others[b], linear[k, b]
            for r in range(n):
                mean[r] += count[r] * term
                product[r] += count[r] * others[r]
        for r in range(n):
            mean[r] /= size
            product[r] /= size
        for b in range(size):
            count, others, term = counts[b], with_others[b], linear[k, b]
            for r in range(n):
                influence = term - slope * others[r] - (mean[r] - slope * product[r])
                power[r] += count[r] * influence * influence
        for r in range(n):
            excess = mean[r] - of_product[k] * product[r] / (size - 1.0) - means[k]
            error = np.sqrt(power[r] / (size * (size - 1.0)))
            statistics[k, r] = excess / error if error > 0.0 else np.copysign(FAR, excess)
