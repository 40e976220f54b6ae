"""Unbiased statistics of one group of responses, from sums over the group (docs/derivations.md, section 8)."""

from dataclasses import dataclass
from math import prod

import numba
import numpy as np
from numba import types

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, F3, FunctionValue, function_value, stage
from grpo_theory.samples import Groups, Rollouts

GROUPS = types.Array(numba.float64, 3, "C", readonly=True)
"""The type of values (N, G, J) of N groups, which may be read-only."""


@stage
def mean_beyond_first(values, j):
    """Return the mean of values (G, J)[:, j] less the first of them; exactly 0 where they are constant."""
    size = values.shape[0]
    total = 0.0
    for g in range(1, size):
        total += values[g, j] - values[0, j]
    return total / size


@function_value(numba.void(GROUPS, F3))
def deviations(values, found):
    """Fill in the deviations (N, G, J) of values from their mean over the group; exactly 0 where they are constant."""
    n, size, width = values.shape
    for i in range(n):
        w, out = values[i], found[i]
        for j in range(width):
            first, mean = w[0, j], mean_beyond_first(w, j)
            for g in range(size):
                out[g, j] = w[g, j] - first - mean


@function_value(numba.void(F2, GROUPS, F2))
def gradients(centred_rewards, scores, found):
    """Fill in the leave-one-out estimates (N, J) of the gradients.

    Exactly 0 where rewards or scores are constant: the deviations of the rewards add up to 0, so one score may be taken off all.
    """
    n, size, width = scores.shape
    for i in range(n):
        z, w, out = centred_rewards[i], scores[i], found[i]
        for j in range(width):
            first, total = w[0, j], 0.0
            for g in range(1, size):
                total += z[g] * (w[g, j] - first)
            out[j] = total / (size - 1.0)


@function_value(numba.void(F2, GROUPS, F2))
def jackknife_variances(centred_rewards, scores, found):
    """Fill in the jackknife variances (N, J) of the gradients' estimates; exactly 0 where the products are constant."""
    n, size, width = scores.shape
    factor = size / (size - 2.0) ** 2 / (size - 1.0)
    products = np.empty(size)
    for i in range(n):
        z, w, out = centred_rewards[i], scores[i], found[i]
        for j in range(width):
            first, mean = w[0, j], mean_beyond_first(w, j)
            product, power = 0.0, 0.0
            for g in range(size):
                products[g] = z[g] * (w[g, j] - first - mean)
                product += products[g] - products[0]
            product /= size
            for g in range(size):
                power += (products[g] - products[0] - product) ** 2
            out[j] = factor * power


@function_value(numba.void(F2, GROUPS, F2))
def powers(centred_rewards, scores, found):
    """Fill in the fields (N, 3) of `PromptPowers`."""
    n, size, width = scores.shape
    pairs = size * (size - 1.0)
    triples = pairs * (size - 2.0)
    for i in range(n):
        z, w = centred_rewards[i], scores[i]
        reward_power = norms = weighted_norms = centred_norms = weighted_centred_norms = squared_total = 0.0
        for g in range(size):
            reward_power += z[g] ** 2
        for j in range(width):
            first, mean = w[0, j], mean_beyond_first(w, j)
            total = square = weighted_square = centred_square = weighted_centred_square = 0.0
            for g in range(size):
                score = w[g, j]
                deviation = score - first - mean
                weighted, weighted_deviation = z[g] * score, z[g] * deviation
                total += weighted_deviation
                square += score * score
                weighted_square += weighted * weighted
                centred_square += deviation * deviation
                weighted_centred_square += weighted_deviation * weighted_deviation
            squared_total += total**2
            norms += square
            weighted_norms += weighted_square
            centred_norms += centred_square
            weighted_centred_norms += weighted_centred_square
        quadruple = (size - 1.0) * (size - 2.0) * squared_total - pairs * weighted_centred_norms + centred_norms * reward_power
        found[i, 0] = quadruple / (triples * (size - 3.0))
        found[i, 1] = (pairs * weighted_norms - norms * reward_power) / triples
        found[i, 2] = ((size - 1.0) * norms * reward_power - size * weighted_norms) / triples


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    found, place = np.empty(values.shape), axis % values.ndim
    shape = prod(values.shape[:place]), values.shape[place], prod(values.shape[place + 1 :])
    deviations(np.ascontiguousarray(values).reshape(shape), found.reshape(shape))
    return found


def _each(fill: FunctionValue, rollouts: Groups, width: int) -> Array:
    """Return what a function fills in for each prompt, shape (..., B, width), from its centred rewards and its scores."""

    def of_groups(same: Rollouts) -> Array:
        size, scores = same.group_size, np.ascontiguousarray(same.known_scores)
        z, w = centred(same.rewards, -1).reshape(-1, size), scores.reshape(-1, size, scores.shape[-1])
        found = np.empty((len(w), width))
        fill(z, w, found)
        return found.reshape(*same.rewards.shape[:-1], width)

    return rollouts.by_prompt(of_groups)


def prompt_gradients(rollouts: Groups) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    rollouts.require(responses=2)
    return _each(gradients, rollouts, rollouts.known_scores.shape[-1])


def prompt_jackknife_variances(rollouts: Groups) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}, F = E[W W'], where the variance is
    diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}: too large, in the second order alone. Needs G >= 3.
    """
    rollouts.require(responses=3)
    return _each(jackknife_variances, rollouts, rollouts.known_scores.shape[-1])


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


def prompt_powers(rollouts: Groups) -> PromptPowers:
    """Compute the three U-statistics of each prompt in O(G J); needs G >= 4."""
    rollouts.require(responses=4)
    found = _each(powers, rollouts, 3)
    return PromptPowers(found[..., 0], found[..., 1], found[..., 2])
