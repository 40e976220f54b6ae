"""Standardised advantages as arXiv 2603.01162 has them, and the function of the success probability that they ascend."""

import numpy as np
from scipy.special import comb

from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.jit import kernel
from simulations.sequence.divergences import Numbers


@kernel
def leave_out(rewards, differences):
    """Fill `differences` (G,) with rewards (G,) less the mean of the others, and return the variance of the group, ddof 1."""
    others = rewards.size - 1.0
    variance = centre(rewards, differences) / others
    for g in range(rewards.size):
        differences[g] *= rewards.size / others
    return variance


def standardised(batch, advantages):
    """A = (Z - mean of the group's other rewards) / (the group's standard deviation, ddof 1); 0 in a uniform group."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] /= np.sqrt(variance)


STANDARDISED = make_estimator("standardised", standardised, minimum_group_size=2, exchangeable=True)


def ascended(success: Numbers, group_size: int) -> Numbers:
    """Return h(p) whose h'(p) grad p is the mean update at success probabilities p (docs/derivations.md, section 21).

    h(p) = (1/sqrt(G (G-1))) sum_{S=1}^{G-1} P(Binomial(G-1, p) >= S)/sqrt(s (1-s)), s = S/G; p may be complex.
    """
    n = group_size - 1
    s = np.arange(1, group_size) / group_size
    j = np.arange(group_size)
    law = comb(n, j) * success[..., None] ** j * (1.0 - success[..., None]) ** (n - j)
    weights = np.concatenate([[0.0], np.cumsum(1.0 / np.sqrt(s * (1.0 - s)))])
    return law @ weights / np.sqrt(group_size * n)
