"""Advantages for the best of k: means over subsets of a group, and the baselines that papers take from them."""

import numba
import numpy as np

from simulations.kernels import unregistered


@numba.njit
def choose(n, k):
    """Return how many subsets of k a set of n has, 0 if k is negative."""
    ways = 1.0 if k >= 0 else 0.0
    for m in range(k):
        ways *= max(n - m, 0) / (m + 1)
    return ways


@unregistered(
    "best_of_subsets", parameters={"k": 2.0, "beside": 1.0, "share": 0.0, "own": 0.0}, minimum_group_size=2, exchangeable=True
)
def best_of_subsets(batch, advantages):
    """A = k (Q - share R): Q the mean maximum over the k-subsets with the response, R over subsets of `beside` others.

    The package averages over a group of n, so that A is n times the rewards s of PKPO (arXiv 2505.15201).  If `own` is 1 the
    subsets of R may have the response in them.
    """
    k, beside, n = int(batch.parameters[0]), int(batch.parameters[1]), batch.rewards.shape[1]
    own = int(batch.parameters[3])
    for b in range(batch.rewards.shape[0]):
        order = np.argsort(batch.rewards[b])
        for i in range(n):
            # Of j in rising order all before it are smaller: it is the largest of C(j, k-1) subsets, of others of C(j-1, k-2).
            best, base = choose(i, k - 1) * batch.rewards[b, order[i]], 0.0
            for j in range(n):
                if j > i:
                    best += choose(j - 1, k - 2) * batch.rewards[b, order[j]]
                if j != i or own:
                    base += choose(j - (j > i and not own), beside - 1) * batch.rewards[b, order[j]]
            advantages[b, order[i]] = k * (best / choose(n - 1, k - 1) - batch.parameters[2] * base / choose(n - 1 + own, beside))


def baselines(k, n):
    """Return PKPO's estimators and that which leaves two out, by name, for the best of k in groups of n."""
    how = {
        "plain": (1, 0.0),
        "leave-one-out": (k, n / (n - 1)),
        "k minus one": (k - 1, 1.0),
        "leave-two-out": (k, 1.0),
    }
    return {name: best_of_subsets.with_parameters(k=k, beside=beside, share=share) for name, (beside, share) in how.items()}
