"""Unbiased statistics of one group of responses, from sums over the group (docs/derivations.md, section 8)."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.samples import Rollouts


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    shifted = values - np.take(values, [0], axis=axis)
    return shifted - shifted.mean(axis=axis, keepdims=True)


def prompt_gradients(rollouts: Rollouts) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    rollouts.require(responses=2)
    z = centred(rollouts.rewards, -1)
    return (z[..., None, :] @ rollouts.scores)[..., 0, :] / (rollouts.group_size - 1)


def prompt_jackknife_variances(rollouts: Rollouts) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}, F = E[W W'], where the variance is
    diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}: too large, in the second order alone. Needs G >= 3.
    """
    rollouts.require(responses=3)
    size = rollouts.group_size
    products = centred(rollouts.rewards, -1)[..., None] * centred(rollouts.scores, -2)
    return (size / (size - 2.0) ** 2) * products.var(axis=-2, ddof=1)


@dataclass(frozen=True)
class PromptPowers:
    """Unbiased estimates, given the prompt, of what the error of a gradient estimate is made of; all of shape (..., B).

    Attributes
    ----------
    gradient : ndarray
        Of ||g||^2: the U-statistic of order four, the mean of h(i,j) . h(k,l) over distinct responses.
    advantage : ndarray
        Of E[||W||^2 (Z - V)^2]: the mean of ||W_i||^2 (Z_i - Z_j)(Z_i - Z_k).
    independent : ndarray
        Of E||W||^2 Var(Z): the mean of ||W_k||^2 (Z_i - Z_j)^2 / 2.
    """

    gradient: Array
    advantage: Array
    independent: Array


def prompt_powers(rollouts: Rollouts) -> PromptPowers:
    """Compute the three U-statistics of each prompt in O(G J); needs G >= 4."""
    rollouts.require(responses=4)
    n = rollouts.group_size
    z, w = centred(rollouts.rewards, -1), centred(rollouts.scores, -2)
    z2 = z**2
    reward_power = z2.sum(axis=-1)
    norms, centred_norms = (np.einsum("...j,...j->...", x, x) for x in (rollouts.scores, w))
    total = (z[..., None, :] @ w)[..., 0, :]
    pairs, triples = n * (n - 1.0), n * (n - 1.0) * (n - 2.0)
    gradient = (
        (n - 1.0) * (n - 2.0) * np.einsum("...j,...j->...", total, total)
        - pairs * (centred_norms * z2).sum(axis=-1)
        + centred_norms.sum(axis=-1) * reward_power
    ) / (triples * (n - 3.0))
    weighted, product = (norms * z2).sum(axis=-1), norms.sum(axis=-1) * reward_power
    return PromptPowers(gradient, (pairs * weighted - product) / triples, ((n - 1.0) * product - n * weighted) / triples)
