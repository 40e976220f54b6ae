"""The law of a group of responses: how many of each there are, all cases enumerated."""

from functools import cache

import numpy as np
from scipy.special import gammaln

from grpo_theory.arrays import Array


@cache
def multisets(n_responses: int, group_size: int) -> Array:
    """Return all counts (n, K) of K responses that add up to G."""
    if n_responses == 1:
        return np.full((1, 1), float(group_size))
    parts = []
    for first in range(group_size + 1):
        rest = multisets(n_responses - 1, group_size - first)
        parts.append(np.column_stack([np.full(len(rest), float(first)), rest]))
    return np.concatenate(parts)


@cache
def _log_multinomials(n_responses: int, group_size: int) -> Array:
    counts = multisets(n_responses, group_size)
    return np.asarray(gammaln(group_size + 1.0) - gammaln(counts + 1.0).sum(axis=1))


def multiset_probabilities(probabilities: Array, group_size: int) -> Array:
    """Return the probability of each of `multisets`, shape (n,), for independent responses with probabilities (K,)."""
    counts = multisets(probabilities.size, group_size)
    return np.exp(_log_multinomials(probabilities.size, group_size) + counts @ np.log(probabilities))
