"""Unbiased statistics of one group of responses, from sums over the group (docs/derivations.md, section 8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba import types

from grpo_theory.arrays import Array, read_only
from grpo_theory.compiler import F2, F3, FunctionValue, function_value, stage
from grpo_theory.samples import Groups, Rollouts

GROUPS = types.Array(numba.float64, 3, "C", readonly=True)
"""The type of values (N, G, J) of N groups, which may be read-only."""


@stage
def fill_means_beyond_first(values, means):
    """Fill in the means (J,) of values (G, J) less the first of them; exactly 0 where they are constant."""
    size, width = values.shape
    for j in range(width):
        means[j] = 0.0
    for g in range(1, size):
        for j in range(width):
            means[j] += values[g, j] - values[0, j]
    for j in range(width):
        means[j] /= size


@function_value(numba.void(GROUPS, F3))
def deviations(values, differences):
    """Fill in the deviations (N, G, J) of values from their mean over the group; exactly 0 where they are constant."""
    n, size, width = values.shape
    means = np.empty(width)
    for i in range(n):
        w, out = values[i], differences[i]
        fill_means_beyond_first(w, means)
        for g in range(size):
            for j in range(width):
                out[g, j] = w[g, j] - w[0, j] - means[j]


@function_value(numba.void(F2, GROUPS, F2))
def gradients(centred_rewards, scores, estimates):
    """Fill in the leave-one-out estimates (N, J) of the gradients.

    Exactly 0 where rewards or scores are constant: the deviations of the rewards add up to 0, so one score may be taken off all.
    """
    n, size, width = scores.shape
    for i in range(n):
        z, w, out = centred_rewards[i], scores[i], estimates[i]
        for j in range(width):
            out[j] = 0.0
        for g in range(1, size):
            for j in range(width):
                out[j] += z[g] * (w[g, j] - w[0, j])
        for j in range(width):
            out[j] /= size - 1.0


@function_value(numba.void(F2, GROUPS, F2))
def jackknife_variances(centred_rewards, scores, variances):
    """Fill in the jackknife variances (N, J) of the gradients' estimates; exactly 0 where the products are constant."""
    n, size, width = scores.shape
    factor = size / (size - 2.0) ** 2 / (size - 1.0)
    means, average, products = np.empty(width), np.empty(width), np.empty((size, width))
    for i in range(n):
        z, w, out = centred_rewards[i], scores[i], variances[i]
        fill_means_beyond_first(w, means)
        for g in range(size):
            for j in range(width):
                products[g, j] = z[g] * (w[g, j] - w[0, j] - means[j])
        fill_means_beyond_first(products, average)
        for j in range(width):
            out[j] = 0.0
        for g in range(size):
            for j in range(width):
                out[j] += (products[g, j] - products[0, j] - average[j]) ** 2
        for j in range(width):
            out[j] *= factor


@stage
def add_squares(z, w, means, sums):
    """Add up, over a group's centred rewards z (G,) and scores w (G, J), what `powers` needs of each component, (5, J).

    Row 0 sums the products of reward and score, both centred. Rows 1 and 2 sum the squares of the scores, and of their products
    with z. Rows 3 and 4 do the same for the centred scores.
    """
    size, width = w.shape
    for j in range(width):
        for row in range(5):
            sums[row, j] = 0.0
    for g in range(size):
        for j in range(width):
            score = w[g, j]
            deviation = score - w[0, j] - means[j]
            weighted, weighted_deviation = z[g] * score, z[g] * deviation
            sums[0, j] += weighted_deviation
            sums[1, j] += score * score
            sums[2, j] += weighted * weighted
            sums[3, j] += deviation * deviation
            sums[4, j] += weighted_deviation * weighted_deviation


@function_value(numba.void(F2, GROUPS, F2))
def powers(centred_rewards, scores, fields):
    """Fill in the fields (N, 3) of `PromptPowers`."""
    n, size, width = scores.shape
    pairs = size * (size - 1.0)
    triples = pairs * (size - 2.0)
    means, sums = np.empty(width), np.empty((5, width))
    for i in range(n):
        z, w = centred_rewards[i], scores[i]
        fill_means_beyond_first(w, means)
        add_squares(z, w, means, sums)
        reward_power = norms = weighted_norms = centred_norms = weighted_centred_norms = squared_total = 0.0
        for g in range(size):
            reward_power += z[g] ** 2
        for j in range(width):
            squared_total += sums[0, j] ** 2
            norms += sums[1, j]
            weighted_norms += sums[2, j]
            centred_norms += sums[3, j]
            weighted_centred_norms += sums[4, j]
        quadruple = (size - 1.0) * (size - 2.0) * squared_total - pairs * weighted_centred_norms + centred_norms * reward_power
        fields[i, 0] = quadruple / (triples * (size - 3.0))
        fields[i, 1] = (pairs * weighted_norms - norms * reward_power) / triples
        fields[i, 2] = ((size - 1.0) * norms * reward_power - size * weighted_norms) / triples


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    differences, axis = np.empty(values.shape), axis % values.ndim
    shape = prod(values.shape[:axis]), values.shape[axis], prod(values.shape[axis + 1 :])
    deviations(np.ascontiguousarray(values).reshape(shape), differences.reshape(shape))
    return differences


def shifted_mean(values: Array, axis: int) -> Array:
    """Return the mean along an axis of what values are above the first: a large constant in all of them costs no digits."""
    return np.take(values, 0, axis=axis) + shifted(values, axis).mean(axis=axis)


def shifted(values: Array, axis: int) -> Array:
    """Return what values are above the first along an axis."""
    return values - np.take(values, [0], axis=axis)


def _each(rollouts: Groups, *fills: tuple[FunctionValue, int]) -> list[Array]:
    """Return what functions fill in for each prompt, each (..., B, width), from its centred rewards and its scores."""

    def of_groups(same: Rollouts) -> Array:
        size, scores = same.group_size, np.ascontiguousarray(same.known_scores)
        z, w = centred(same.rewards, -1).reshape(-1, size), scores.reshape(-1, size, scores.shape[-1])
        statistics = [np.empty((len(w), width)) for _, width in fills]
        for (fill, _), filled in zip(fills, statistics, strict=True):
            fill(z, w, filled)
        whole = np.concatenate(statistics, axis=1) if len(fills) > 1 else statistics[0]
        return whole.reshape(*same.rewards.shape[:-1], -1)

    whole = rollouts.by_prompt(of_groups)
    ends = np.cumsum([width for _, width in fills])
    return [np.ascontiguousarray(part) for part in np.split(whole, ends[:-1], axis=-1)]


_REMEMBERED: WeakKeyDictionary[Groups, dict[FunctionValue, Array]] = WeakKeyDictionary()
"""What `_once` has computed, as long as the rollouts live."""


def _once(rollouts: Groups, *fills: tuple[FunctionValue, int]) -> list[Array]:
    """Return `_each` for functions, closed to writing, and kept: several intervals and plans ask this of the same rollouts.

    What is missing is computed in one pass over the groups.
    """
    known = _REMEMBERED.setdefault(rollouts, {})
    missing = [(fill, width) for fill, width in fills if fill not in known]
    if missing:
        found = _each(rollouts, *missing)
        known.update({fill: read_only(one) for (fill, _), one in zip(missing, found, strict=True)})
    return [known[fill] for fill, _ in fills]


def prompt_gradients(rollouts: Groups) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    rollouts.require(responses=2)
    return _once(rollouts, (gradients, rollouts.known_scores.shape[-1]))[0]


def prompt_jackknife_variances(rollouts: Groups) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean ``diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}``, with F = E[W W']. The variance itself is
    ``diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}``. So the jackknife variance is too large, in the second order alone.
    Needs G >= 3.
    """
    rollouts.require(responses=3)
    return _each(rollouts, (jackknife_variances, rollouts.known_scores.shape[-1]))[0]


@dataclass(frozen=True, eq=False)
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
    return PromptPowers(*_fields(_once(rollouts, (powers, 3))[0]))


def gradients_and_powers(rollouts: Groups) -> tuple[Array, PromptPowers]:
    """Compute `prompt_gradients` and `prompt_powers` in one pass over the groups."""
    rollouts.require(responses=4)
    found, fields = _once(rollouts, (gradients, rollouts.known_scores.shape[-1]), (powers, 3))
    return found, PromptPowers(*_fields(fields))


def _fields(filled: Array) -> Iterator[Array]:
    """Return what is filled in beside each other, (..., L), one by one."""
    return (filled[..., k] for k in range(filled.shape[-1]))
