"""Tables of rewards for the planner's tests."""

import numpy as np
from scipy import sparse
from scipy.stats import binom

import grpo_theory as gt


def table(successes, sizes):
    """Return counts of rewards 0 and 1."""
    k, n = np.broadcast_arrays(np.asarray(successes), np.asarray(sizes))
    return gt.RewardCounts(np.array([0.0, 1.0]), sparse.csr_array(np.stack([n - k, k], axis=1)))


def drawn(rates, size, seed):
    """Draw counts of rewards 0 and 1 at success rates."""
    return table(np.random.default_rng(seed).binomial(size, rates), np.full(np.shape(rates), size))


def expected(terms, size, rate):
    """Return the mean of terms (size + 1,) over the binomial successes at a rate."""
    return binom.pmf(np.arange(size + 1), size, rate) @ terms
