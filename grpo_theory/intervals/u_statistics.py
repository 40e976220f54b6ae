"""Unbiased statistics by prompt, and the jackknife and the bootstrap-t over prompts (docs/derivations.md, section 8).

Sums run from the first term to the last, so that what is constant is exactly 0 and every processor finds the same bits.
"""

from collections.abc import Callable
from math import floor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from grpo_theory.intervals.rollouts import Groups
from grpo_theory.simulate.streams import Rng, as_seed_sequence
from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import ROUNDING, Array, as_count, read_only, typed

FAR = 1e8
"""The size of a studentised statistic whose standard error is 0, as of resamples of one prompt alone."""


def added(values: Array, axis: int) -> Array:
    """Return the sum along an axis, term after term."""
    return np.asarray(sum(np.moveaxis(values, axis, 0)))


def shifted(values: Array, axis: int) -> Array:
    """Return what values are above the first along an axis."""
    return values - np.take(values, [0], axis=axis)


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    above = shifted(values, axis)
    return above - np.expand_dims(added(above, axis) / values.shape[axis], axis)


def shifted_mean(values: Array, axis: int) -> Array:
    """Return the mean along an axis of what values are above the first: a large constant in all of them costs no digits."""
    return np.take(values, 0, axis=axis) + shifted(values, axis).mean(axis=axis)


def error_of_mean(values: Array, axis: int) -> Array:
    """Return the standard error of the mean of n independent values along an axis; exactly 0 where they are constant."""
    # E[sum_b (t_b - mean t)^2/(n (n - 1))] = Var(mean t), also where the variances of the t_b differ (docs/derivations.md,
    # section 33).
    size = values.shape[axis]
    return np.sqrt((centred(values, axis) ** 2).sum(axis=axis) / (size * (size - 1.0)))


def gradients(z: Array, w: Array) -> Array:
    """Return the leave-one-out estimates (..., J), from centred rewards z (..., G) and scores w (..., G, J)."""
    # sum_i z_i w_i / (G - 1).  The z_i add up to 0, so the first score may be taken off all: constant scores give exactly 0.
    return added(z[..., None] * shifted(w, -2), -2) / (z.shape[-1] - 1.0)


def jackknife_variances(z: Array, w: Array) -> Array:
    """Return the jackknife variances (..., J) of the estimates; exactly 0 where the products are constant."""
    size = z.shape[-1]
    # Without response i the estimate moves by -G/((G-1)(G-2)) (p_i - mean p), p_i = z_i (w_i - mean w); and the jackknife's
    # variance is (G-1)/G times the sum of squares (Arvesen 1969).
    products = centred(z[..., None] * centred(w, -2), -2)
    return added(products**2, -2) * (size / (size - 2.0) ** 2 / (size - 1.0))


def powers(z: Array, w: Array) -> Array:
    """Return the fields of `PromptPowers`, shape (..., 3)."""
    size, weights, deviations = z.shape[-1], z[..., None], centred(w, -2)
    pairs = size * (size - 1.0)
    triples = pairs * (size - 2.0)
    products = weights * deviations
    squared_total = added(added(products, -2) ** 2, -1)
    norms, weighted_norms, centred_norms, weighted_centred_norms = (
        added(added(part**2, -2), -1) for part in (w, weights * w, deviations, products)
    )
    reward_power = added(z**2, -1)
    # Each mean over distinct responses is a sum over all of them, less the sums in which some coincide (section 8).
    # With h_ij = (w_i - w_j)(z_i - z_j)/2, sum h_ij . h_kl over distinct i, j, k, l is (G-1)(G-2) |T|^2 - G(G-1) Q + R.
    # Here T = sum_i z_i w_i, Q = sum_i |w_i|^2 z_i^2 and R = sum_i |w_i|^2 sum_j z_j^2, with centred w and z.
    four = (size - 1.0) * (size - 2.0) * squared_total - pairs * weighted_centred_norms + centred_norms * reward_power
    gradient = four / (triples * (size - 3.0))
    # sum ||W_i||^2 (Z_i - Z_j)(Z_i - Z_k) = G(G-1) sum_i ||W_i||^2 z_i^2 - sum_i ||W_i||^2 sum_j z_j^2 (section 8).
    advantage = (pairs * weighted_norms - norms * reward_power) / triples
    # sum ||W_k||^2 (Z_i - Z_j)^2/2 = (G-1) sum_k ||W_k||^2 sum_i z_i^2 - G sum_k ||W_k||^2 z_k^2 (section 8).
    independent = ((size - 1.0) * norms * reward_power - size * weighted_norms) / triples
    return np.stack([gradient, advantage, independent], axis=-1)


_REMEMBERED: WeakKeyDictionary[Groups, dict[Callable, Array]] = WeakKeyDictionary()
"""Statistics of prompts, as long as the rollouts live: several intervals and plans ask for them of the same rollouts."""


def _of_prompts(rollouts: Groups, responses: int, statistic: Callable[[Array, Array], Array]) -> Array:
    """Return a statistic of each prompt's centred rewards and scores, shape (..., B, width), closed to writing, and kept."""
    rollouts.require(responses=responses)
    known = _REMEMBERED.setdefault(rollouts, {})
    if statistic not in known:
        found = rollouts.by_prompt(lambda same: statistic(centred(same.rewards, -1), same.known_scores))
        known[statistic] = read_only(found)
    return known[statistic]


def prompt_gradients(rollouts: Groups) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    return _of_prompts(rollouts, 2, gradients)


def prompt_jackknife_variances(rollouts: Groups) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean ``diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}``, with F = E[W W']. The variance itself is
    ``diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}``. So the jackknife variance is too large, in the second order alone.
    Needs G >= 3.
    """
    return _of_prompts(rollouts, 3, jackknife_variances)


class PromptPowers(NamedTuple):
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
    return PromptPowers(*np.moveaxis(_of_prompts(rollouts, 4, powers), -1, 0))


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
        u, size = self.gradients, self.gradients.shape[-2]
        # ||g||^2 is the mean of u_a . u_b over different prompts: the square of the sum, less the sum of squares.
        product = added(added(u, -2) ** 2 - added(u**2, -2), -1) / (size * (size - 1.0))
        # c1 = E||g(X) - g||^2 = E||g(X)||^2 - ||g||^2 (docs/derivations.md, sections 2 and 8).
        c1, c2, c3 = self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1)
        return GroupSizeLaw(np.where(np.abs(c1) <= ROUNDING * (np.abs(c2) + np.abs(c3)), 0.0, c1), c2, c3)

    def influences(self) -> Array:
        """Return what each prompt adds to the error of the three estimates, shape (..., 3, B); needs B >= 3.

        The sums of their products over B (B - 1) are the covariance.
        """
        u, size = self.gradients, self.gradients.shape[-2]
        others = added(u * (added(u, -2)[..., None, :] - u), -1)
        found = centred(np.stack([self.power, self.c2, self.c3], axis=-2), -1)
        # c1 is the mean of the powers less the mean product of pairs, of which a prompt has a share in 2 of B.
        # Without prompt b a mean moves by -(t_b - mean t)/(B-1), and the mean product by -2 (o_b - mean o)/((B-1)(B-2)).
        # Here o_b = u_b . sum_{c != b} u_c.
        found[..., 0, :] -= 2.0 / (size - 2.0) * centred(others, -1)
        return found

    def covariance(self) -> Array:
        """Return the delete-one-prompt jackknife covariance of the estimates, shape (..., 3, 3); needs B >= 3."""
        # The jackknife: (B-1)/B sum_b d_b d_b', where d_b = -influence_b/(B-1) is what the estimates move by without prompt b.
        size, found = self.gradients.shape[-2], self.influences()
        return added(found[..., :, None, :] * found[..., None, :, :], -1) / (size * (size - 1.0))


def prompt_terms(rollouts: Groups, prompts: int) -> PromptTerms:
    """Return what each prompt says, of at least so many prompts with four responses."""
    rollouts.require(prompts=prompts, responses=4)
    found = prompt_powers(rollouts)
    # c2 = E trace Sigma_oracle(X), trace Sigma_oracle = E||W||^2 (Z - V)^2 - ||g(x)||^2; and
    # c3 = E[Var(Z | X) E(||W||^2 | X) + ||g(X)||^2] (docs/derivations.md, section 2).
    return PromptTerms(
        prompt_gradients(rollouts), found.gradient, found.advantage - found.gradient, found.independent + found.gradient
    )


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


def bootstrap_quantiles(terms: PromptTerms, weights: Array, resamples: int, level: float, rng: Rng | None) -> tuple[Array, Array]:
    """Return the two quantiles of (estimate* - mean*)/se* for L combinations of c1, c2 and c3, both of shape (..., L).

    The weights (..., L, 3) may differ from dataset to dataset. The quantiles are kept on their own sides of 0, so that limits
    made of them have the estimate between them. All datasets along the leading axes share the resamples; statistics of different
    datasets are uncorrelated given these.

    Raises
    ------
    ValueError
        If the resamples are too few for the level.
    """
    resamples, size = as_count("resamples", resamples), terms.power.shape[-1]
    rank = floor((resamples + 1) * (1.0 - level) / 2.0 + 1e-9)
    if rank < 1:
        raise ValueError(f"resamples must be at least 2/(1 - level) - 1 = {2.0 / (1.0 - level) - 1.0:.0f}, got {resamples}")
    drawn = np.random.default_rng(as_seed_sequence(rng)).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    counts, ranks = np.ascontiguousarray(drawn.T, dtype=np.float64), [rank - 1, resamples - rank]
    quantiles = np.empty((*weights.shape[:-1], 2))
    for i in np.ndindex(terms.power.shape[:-1]):
        statistics = studentised(PromptTerms(*(term[i] for term in terms)), weights[i], counts)
        quantiles[i] = np.partition(statistics, ranks, axis=-1)[:, ranks]
    return np.minimum(quantiles[..., 0], 0.0), np.maximum(quantiles[..., 1], 0.0)


def studentised(terms: PromptTerms, weights: Array, counts: Array) -> Array:
    """Return the studentised statistics (L, R) of one dataset, from the numbers of times (B, R) that each prompt is drawn.

    A resample can hold a prompt twice. So the resampled mean of products of different prompts is centred at the mean of all
    products of the data. That mean includes the products of a prompt with itself.
    """
    u, size, of_product = terms.gradients, len(counts), weights[:, 0]
    total, linear = u.sum(axis=0), weights @ np.stack([terms.power, terms.c2, terms.c3])
    # The resampled mean of U_a* . U_b* over different draws has the mean |mean U|^2 (docs/derivations.md, section 10).
    centre = linear.mean(axis=1) - of_product * (total @ total) / size**2
    # The product of each prompt's estimate with those of all others drawn (B, R), and means over the resample.
    with_others = np.linalg.multi_dot([u, u.T, counts]) - (u**2).sum(axis=1, keepdims=True)
    mean, product = added(counts * linear[:, :, None], 1) / size, added(counts * with_others, 0) / size
    slope = (2.0 * of_product / (size - 2.0))[:, None]
    influence = linear[:, :, None] - slope[:, None] * with_others - (mean - slope * product)[:, None]
    error = np.sqrt(added(counts * influence * influence, 1) / (size * (size - 1.0)))
    excess = mean - of_product[:, None] * product / (size - 1.0) - centre[:, None]
    return np.divide(excess, error, out=np.copysign(FAR, excess), where=error > 0.0)
