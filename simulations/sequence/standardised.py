"""Standardised advantages as arXiv 2603.01162 has them, and the function of the success probability that they ascend."""

import numpy as np
from scipy.special import comb

from grpo_theory.estimation.registry import make_estimator
from simulations.sequence.divergences import Numbers


def standardised(batch, advantages):
    """A = (Z - mean of the group's other rewards) / (the group's standard deviation, ddof 1); 0 in a uniform group."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean = batch.rewards[b].mean()
        squares = ((batch.rewards[b] - mean) ** 2).sum() / (group_size - 1.0)
        for g in range(group_size):
            difference = (batch.rewards[b, g] - mean) * group_size / (group_size - 1.0)
            advantages[b, g] = difference / np.sqrt(squares) if squares > 0.0 else 0.0


STANDARDISED = make_estimator("standardised", standardised, minimum_group_size=2)


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
