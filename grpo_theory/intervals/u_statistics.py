"""Unbiased statistics of one group of responses, from sums over the group (docs/derivations.md, section 8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, prod
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba import types

from grpo_theory.arrays import Array, read_only
from grpo_theory.compiler import F1, F2, F3, FunctionValue, function_value, stage
from grpo_theory.samples import Groups, Rollouts
from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence
from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import ROUNDING, as_count, typed

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


class PromptTerms(NamedTuple):
    """What each prompt says: gradient estimates (..., B, J); estimates of ||g||^2 and of the terms of c2 and c3 (..., B)."""

    gradients: Array
    power: Array
    c2: Array
    c3: Array

    def components(self) -> GroupSizeLaw:
        """Return the unbiased estimates of c1, c2 and c3; needs B >= 2.

        An estimate of c1 that is 0 but for rounding is 0: its sign decides whether there is an optimal group size.
        """
        size, width = self.gradients.shape[-2:]
        product = np.empty(self.power.shape[:-1])
        products_of_pairs(self.gradients.reshape(-1, size, width), product.reshape(-1))
        c1, c2, c3 = self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1)
        return GroupSizeLaw(np.where(np.abs(c1) <= ROUNDING * (np.abs(c2) + np.abs(c3)), 0.0, c1), c2, c3)

    def covariance(self) -> Array:
        """Return the delete-one-prompt jackknife covariance of the estimates, shape (..., 3, 3); needs B >= 3."""
        size, width = self.gradients.shape[-2:]
        covariances = np.empty((*self.power.shape[:-1], 3, 3))
        terms = np.stack([self.power, self.c2, self.c3], axis=-2)
        jackknife_covariances(self.gradients.reshape(-1, size, width), terms.reshape(-1, 3, size), covariances.reshape(-1, 3, 3))
        return covariances

    def influences(self) -> Array:
        """Return what each prompt adds to the error of the three estimates, shape (..., 3, B); needs B >= 3.

        The sums of their products over B (B - 1) are the covariance.
        """
        size = self.gradients.shape[-2]
        total = self.gradients.sum(axis=-2, keepdims=True)
        others = (self.gradients * (total - self.gradients)).sum(axis=-1)
        influences = np.stack([self.power - 2.0 / (size - 2.0) * others, self.c2, self.c3], axis=-2)
        return influences - influences.mean(axis=-1, keepdims=True)


@function_value(numba.void(GROUPS, F1))
def products_of_pairs(gradients, products):
    """Fill in the mean products (N,) of different prompts' estimates (N, B, J)."""
    n, size, width = gradients.shape
    for i in range(n):
        u, product = gradients[i], 0.0
        for j in range(width):
            total = square = 0.0
            for b in range(size):
                total += u[b, j]
                square += u[b, j] * u[b, j]
            product += total * total - square
        products[i] = product / (size * (size - 1.0))


@function_value(numba.void(GROUPS, F3, F3))
def jackknife_covariances(gradients, terms, covariances):
    """Fill in the covariances (N, 3, 3), from gradient estimates (N, B, J) and terms (N, 3, B); exactly 0 of what is constant."""
    n, size, width = gradients.shape
    total, influence, others = np.empty(width), np.empty((3, size)), np.empty(size)
    for i in range(n):
        u, term, out = gradients[i], terms[i], covariances[i]
        for j in range(width):
            total[j] = 0.0
            for b in range(size):
                total[j] += u[b, j]
        product = 0.0
        for b in range(size):
            others[b] = 0.0
            for j in range(width):
                others[b] += u[b, j] * (total[j] - u[b, j])
            # Sums are of differences from the first prompt's: what all prompts have in common is 0 exactly, and not rounding.
            product += others[b] - others[0]
        for k in range(3):
            mean = 0.0
            for b in range(size):
                mean += term[k, b] - term[k, 0]
            for b in range(size):
                influence[k, b] = term[k, b] - term[k, 0] - mean / size
        for b in range(size):
            influence[0, b] -= 2.0 / (size - 2.0) * (others[b] - others[0] - product / size)
        for k in range(3):
            for m in range(3):
                moment = 0.0
                for b in range(size):
                    moment += influence[k, b] * influence[m, b]
                out[k, m] = moment / (size * (size - 1.0))


def prompt_terms(rollouts: Groups, prompts: int) -> PromptTerms:
    """Return what each prompt says, of at least so many prompts with four responses."""
    rollouts.require(prompts=prompts, responses=4)
    gradients, powers = gradients_and_powers(rollouts)
    return PromptTerms(gradients, powers.gradient, powers.advantage - powers.gradient, powers.independent + powers.gradient)


@typed
def estimate_group_size_law(rollouts: Groups) -> GroupSizeLaw:
    """Estimate c1, c2 and c3 without bias from a pilot batch.

    c1 = E||g(X)||^2 - ||g||^2, c2 = E[E(||W||^2 (Z - V)^2 | X) - ||g(X)||^2] and c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].
    What stands under E is estimated by each prompt's U-statistics (`prompt_powers`), ||g||^2 by the products of different
    prompts' gradient estimates. The mean of W must be 0, as that of a score is.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.

    Returns
    -------
    GroupSizeLaw
        Shape (...).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()  # of a language model
    >>> rollouts = gt.Rollouts(data.rewards[data.index], data.sketches[data.index])
    >>> round(float(gt.intervals.estimate_group_size_law(rollouts).optimum), 1)
    3.1
    """
    return prompt_terms(rollouts, 2).components()


FAR = 1e8
"""The size of a studentised statistic whose standard error is 0, as of resamples of one prompt alone."""


class Resamples(NamedTuple):
    """How often each prompt is drawn, and which order statistics bound the middle.

    Attributes
    ----------
    counts : ndarray, shape (R, B)
    rank : int
        The number of statistics in each tail, the quantile included.
    """

    counts: Array
    rank: int


def draw_resamples(size: int, resamples: int, level: float, rng: Rng | None) -> Resamples:
    """Draw `size` prompts with replacement, so many times; raise ValueError if these are too few for the level."""
    resamples = as_count("resamples", resamples)
    rank = floor((resamples + 1) * (1.0 - level) / 2.0 + 1e-9)
    if rank < 1:
        raise ValueError(f"resamples must be at least 2/(1 - level) - 1 = {2.0 / (1.0 - level) - 1.0:.0f}, got {resamples}")
    counts = np.random.default_rng(as_seed_sequence(rng)).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    return Resamples(counts.astype(np.float64), rank)


def bootstrap_quantiles(terms: PromptTerms, weights: Array, resamples: Resamples) -> tuple[Array, Array]:
    """Return the two quantiles of (estimate* - mean*)/se* for L combinations of c1, c2 and c3, both of shape (..., L).

    The weights (..., L, 3) may differ from dataset to dataset. The quantiles are kept on their own sides of 0, so that limits
    made of them have the estimate between them. All datasets along the leading axes share the resamples; statistics of different
    datasets are uncorrelated given these.
    """
    last = len(resamples.counts) - resamples.rank
    ranks = [resamples.rank - 1, last]
    counts = np.ascontiguousarray(resamples.counts.T)
    leading = terms.power.shape[:-1]
    quantiles = np.empty((*leading, weights.shape[-2], 2))
    for i in np.ndindex(leading):
        statistics = _statistics(PromptTerms(*(term[i] for term in terms)), weights[i], counts)
        quantiles[i] = np.partition(statistics, ranks, axis=-1)[:, ranks]
    return np.minimum(quantiles[..., 0], 0.0), np.maximum(quantiles[..., 1], 0.0)


def _statistics(terms: PromptTerms, weights: Array, counts: Array) -> Array:
    """Return the studentised statistics (L, R) of one dataset, from the numbers of times (B, R) that each prompt is drawn.

    A resample can hold a prompt twice. So the resampled mean of products of different prompts is centred at the mean of all
    products of the data. That mean includes the products of a prompt with itself.
    """
    u, size = terms.gradients, len(counts)
    with_others = np.linalg.multi_dot([u, u.T, counts]) - (u**2).sum(axis=1, keepdims=True)
    total = u.sum(axis=0)
    linear = weights @ np.stack([terms.power, terms.c2, terms.c3])
    means = linear.mean(axis=1) - weights[:, 0] * (total @ total) / size**2
    statistics = np.empty((len(weights), counts.shape[1]))
    studentised(counts, with_others, linear, weights[:, 0].copy(), means, statistics)
    return statistics


@function_value(numba.void(F2, F2, F2, F1, F1, F2))
def studentised(counts, with_others, linear, of_product, means, statistics):
    """Fill in the statistics (L, R) of resamples.

    Parameters
    ----------
    counts, with_others : ndarray, shape (B, R)
        How often each prompt is drawn, and the product of its gradient estimate with those of all others drawn.
    linear : ndarray, shape (L, B)
        The prompts' terms of each combination.
    of_product, means : ndarray, shape (L,)
        By how much of the products' mean a combination falls, and what its own mean over resamples is.
    """
    size, n = counts.shape
    # Resamples are the innermost loop everywhere: they lie side by side in memory, and the compiler makes vectors of them.
    mean, product, power = np.empty(n), np.empty(n), np.empty(n)
    for k in range(len(means)):
        slope = 2.0 * of_product[k] / (size - 2.0)
        mean[:], product[:], power[:] = 0.0, 0.0, 0.0
        for b in range(size):
            count, others, term = counts[b], with_others[b], linear[k, b]
            for r in range(n):
                mean[r] += count[r] * term
                product[r] += count[r] * others[r]
        for r in range(n):
            mean[r] /= size
            product[r] /= size
        for b in range(size):
            count, others, term = counts[b], with_others[b], linear[k, b]
            for r in range(n):
                influence = term - slope * others[r] - (mean[r] - slope * product[r])
                power[r] += count[r] * influence * influence
        for r in range(n):
            excess = mean[r] - of_product[k] * product[r] / (size - 1.0) - means[k]
            error = np.sqrt(power[r] / (size * (size - 1.0)))
            statistics[k, r] = excess / error if error > 0.0 else np.copysign(FAR, excess)
