"""Unbiased statistics of one group of responses, from sums over the group (docs/derivations.md, section 8)."""

from dataclasses import dataclass
from math import prod

import numba
import numpy as np
from numba import types

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, F3, function_value, stage
from grpo_theory.samples import Rollouts

GROUPS = types.Array(numba.float64, 3, "C", readonly=True)
"""The type of values (N, G, J) of N groups, which may be read-only."""


@stage
def centre(values, found):
    """Fill in the deviations (G, J) of a group's values from their mean over the group; exactly 0 where they are constant."""
    size, width = values.shape
    for j in range(width):
        found[0, j] = 0.0
    for g in range(1, size):
        for j in range(width):
            found[0, j] += values[g, j] - values[0, j]
    for j in range(width):
        found[0, j] /= -size
    for g in range(1, size):
        for j in range(width):
            found[g, j] = values[g, j] - values[0, j] + found[0, j]


@function_value(numba.void(GROUPS, F3))
def deviations(values, found):
    """Fill in the deviations (N, G, J) of each group's values."""
    for i in range(values.shape[0]):
        centre(values[i], found[i])


@function_value(numba.void(GROUPS, GROUPS, F2))
def gradients(rewards, scores, found):
    """Fill in the leave-one-out estimates (N, J) of the gradients, from rewards (N, G, 1) and scores (N, G, J)."""
    n, size, width = scores.shape
    z = np.empty((size, 1))
    for i in range(n):
        centre(rewards[i], z)
        for j in range(width):
            found[i, j] = 0.0
        for g in range(size):
            for j in range(width):
                found[i, j] += z[g, 0] * scores[i, g, j]
        for j in range(width):
            found[i, j] /= size - 1


@function_value(numba.void(GROUPS, GROUPS, F2))
def jackknife_variances(rewards, scores, found):
    """Fill in the jackknife variances (N, J) of the gradients' estimates, from rewards (N, G, 1) and scores (N, G, J)."""
    n, size, width = scores.shape
    z, w, products = np.empty((size, 1)), np.empty((size, width)), np.empty((size, width))
    for i in range(n):
        centre(rewards[i], z)
        centre(scores[i], w)
        for g in range(size):
            for j in range(width):
                products[g, j] = z[g, 0] * w[g, j]
        centre(products, w)
        for j in range(width):
            found[i, j] = 0.0
        for g in range(size):
            for j in range(width):
                found[i, j] += w[g, j] ** 2
        for j in range(width):
            found[i, j] *= size / (size - 2.0) ** 2 / (size - 1.0)


@function_value(numba.void(GROUPS, GROUPS, F2))
def powers(rewards, scores, found):
    """Fill in the fields of `PromptPowers` (3, N), from rewards (N, G, 1) and scores (N, G, J)."""
    n, size, width = scores.shape
    pairs = size * (size - 1.0)
    triples = pairs * (size - 2.0)
    z, w, total = np.empty((size, 1)), np.empty((size, width)), np.empty(width)
    for i in range(n):
        centre(rewards[i], z)
        centre(scores[i], w)
        reward_power = norms = weighted_norms = centred_norms = weighted_centred_norms = squared_total = 0.0
        for j in range(width):
            total[j] = 0.0
        for g in range(size):
            squared_reward, norm, centred_norm = z[g, 0] ** 2, 0.0, 0.0
            for j in range(width):
                norm += scores[i, g, j] ** 2
                centred_norm += w[g, j] ** 2
                total[j] += z[g, 0] * w[g, j]
            reward_power += squared_reward
            norms += norm
            weighted_norms += norm * squared_reward
            centred_norms += centred_norm
            weighted_centred_norms += centred_norm * squared_reward
        for j in range(width):
            squared_total += total[j] ** 2
        quadruple = (size - 1.0) * (size - 2.0) * squared_total - pairs * weighted_centred_norms + centred_norms * reward_power
        found[0, i] = quadruple / (triples * (size - 3.0))
        found[1, i] = (pairs * weighted_norms - norms * reward_power) / triples
        found[2, i] = ((size - 1.0) * norms * reward_power - size * weighted_norms) / triples


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    found, place = np.empty(values.shape), axis % values.ndim
    shape = prod(values.shape[:place]), values.shape[place], prod(values.shape[place + 1 :])
    deviations(np.ascontiguousarray(values).reshape(shape), found.reshape(shape))
    return found


def _groups(rollouts: Rollouts) -> tuple[Array, Array]:
    """Return the rewards (N, G, 1) and scores (N, G, J) of all groups, one after another."""
    rewards, scores = (np.ascontiguousarray(array) for array in (rollouts.rewards, rollouts.scores))
    return rewards.reshape(-1, rollouts.group_size, 1), scores.reshape(-1, *scores.shape[-2:])


def prompt_gradients(rollouts: Rollouts) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    rollouts.require(responses=2)
    rewards, scores = _groups(rollouts)
    found = np.empty((len(scores), scores.shape[-1]))
    gradients(rewards, scores, found)
    return found.reshape(*rollouts.rewards.shape[:-1], -1)


def prompt_jackknife_variances(rollouts: Rollouts) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}, F = E[W W'], where the variance is
    diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}: too large, in the second order alone. Needs G >= 3.
    """
    rollouts.require(responses=3)
    rewards, scores = _groups(rollouts)
    found = np.empty((len(scores), scores.shape[-1]))
    jackknife_variances(rewards, scores, found)
    return found.reshape(*rollouts.rewards.shape[:-1], -1)


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
    rewards, scores = _groups(rollouts)
    found = np.empty((3, len(scores)))
    powers(rewards, scores, found)
    return PromptPowers(*found.reshape(3, *rollouts.rewards.shape[:-1]))
