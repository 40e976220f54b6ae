"""The law of a group of responses: how many of each there are, all cases enumerated."""

from functools import cache

import numpy as np
from scipy.special import gammaln

from grpo_theory.arrays import Array
from grpo_theory.exact.multisets import multisets


@cache
def _log_multinomials(n_responses: int, group_size: int) -> Array:
    counts = multisets(n_responses, group_size)
    return np.asarray(gammaln(group_size + 1.0) - gammaln(counts + 1.0).sum(axis=1))


def multiset_probabilities(probabilities: Array, group_size: int) -> Array:
    """Return the probability of each of `multisets`, shape (n,), for independent responses with probabilities (K,)."""
    counts = multisets(probabilities.size, group_size)
    return np.exp(_log_multinomials(probabilities.size, group_size) + counts @ np.log(probabilities))
