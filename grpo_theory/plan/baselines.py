"""Which baseline leaves the gradient the least noise on a user's prompts, from rewards and scores."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grpo_theory.intervals.interval import Interval, check_level, quotient_limits, tail_quantiles
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.intervals.u_statistics import prompt_powers
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.validation import Array, as_count, typed

NAMES = ("none", "mean over prompts", "leave-one-out mean", "shrinkage", "value", "optimal")
"""The baselines, from what needs least to what needs most: the last two need V(x) and b*(x), which nobody knows exactly."""
REFERENCE = NAMES.index("leave-one-out mean")


class BaselineTerms(NamedTuple):
    """Estimates, given the prompt, of what the noise under any baseline is made of; all of shape (B,).

    Z is the reward, V its mean, P = ||W||^2 the squared norm of the score, m the mean reward of the other prompts. All but
    `gain` are unbiased.

    Attributes
    ----------
    oracle : ndarray
        Of E[P (Z - V)^2] - ||g||^2, the noise under the value baseline V.
    second : ndarray
        Of Var(Z) E[P] + ||g||^2, what the leave-one-out mean adds, times G - 1.
    uncentred : ndarray
        Of E[P Z^2] - ||g||^2, the noise without a baseline.
    tilt, tilt_slope : ndarray
        Of (V - m) Cov(P, Z), and of its derivative in m.
    offset, offset_slope : ndarray
        Of E[P] (V - m)^2, and of its derivative in m.
    gain : ndarray
        Of Cov(P, Z)^2 / E[P], by how much b* is better than V: an unbiased numerator over the mean of P.
    value : ndarray
        Of V.
    """

    oracle: Array
    second: Array
    uncentred: Array
    tilt: Array
    tilt_slope: Array
    offset: Array
    offset_slope: Array
    gain: Array
    value: Array


@dataclass(frozen=True, eq=False)
class BaselineTable:
    """The gradient's noise under each baseline: the trace of Cov(a group's estimate | prompt) times G, averaged over prompts.

    Attributes
    ----------
    names : tuple of str
    noise : ndarray, shape (L,)
        In units of squared gradient norm.
    relative : Interval
        Shape (L,): the noise over that of the leave-one-out mean, less 1, so that -0.1 is 10% less noise. The limits pair the
        same prompts. The leave-one-out mean itself has 0.
    shrinkage : float
        The weight of the mean over prompts in its best mixture with the leave-one-out mean.
    group_size : int
        The size of the groups in which the baseline is used.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> table = gt.plan.compare_baselines(rollouts, group_size=8)
    >>> table.names
    ('none', 'mean over prompts', 'leave-one-out mean', 'shrinkage', 'value', 'optimal')
    >>> table.relative.estimate.round(2).tolist()
    [0.91, -0.09, 0.0, -0.09, -0.14, -0.22]
    """

    names: tuple[str, ...]
    noise: Array
    relative: Interval
    shrinkage: float
    group_size: int


def baseline_terms(rollouts: Groups) -> BaselineTerms:
    """Compute the terms of each prompt from its own group of at least 4 responses."""
    rollouts.require(prompts=2, responses=4)
    value = rollouts.by_prompt(lambda group: group.rewards.mean(axis=-1))
    centre = float(value.mean())
    oracle, second, uncentred, power, covariance, with_value, power_value, power_square, gain = rollouts.by_prompt(
        lambda group: _prompt_statistics(group, centre)
    ).T
    m = (value.sum() - value) / (value.size - 1.0) - centre
    return BaselineTerms(
        oracle=oracle,
        second=second,
        uncentred=uncentred,
        tilt=with_value - m * covariance,
        tilt_slope=-covariance,
        offset=power_square - 2.0 * m * power_value + m**2 * power,
        offset_slope=2.0 * (m * power - power_value),
        gain=gain,
        value=value,
    )


def _prompt_statistics(group: Rollouts, centre: float) -> Array:
    """Return the nine U-statistics of prompts (b, G), with rewards less a centre where V stands, shape (b, 9)."""
    size = group.group_size
    p = np.einsum("...j,...j->...", group.known_scores, group.known_scores)
    z = group.rewards - centre
    powers, covariances = prompt_powers(group), prompt_powers(Rollouts(group.rewards, p[..., None]))
    pairs, triples = size * (size - 1.0), size * (size - 1.0) * (size - 2.0)
    total, sum_z, sum_pz, sum_pzz = p.sum(axis=-1), z.sum(axis=-1), (p * z).sum(axis=-1), (p * z**2).sum(axis=-1)
    power_square = (total * (sum_z**2 - (z**2).sum(axis=-1)) - 2.0 * sum_z * sum_pz + 2.0 * sum_pzz) / triples
    power = total / size
    return np.stack(
        [
            powers.advantage - powers.gradient,
            powers.independent + powers.gradient,
            (p * group.rewards**2).mean(axis=-1) - powers.gradient,
            power,
            (size * sum_pz - total * sum_z) / pairs,
            (sum_pz * sum_z - sum_pzz) / pairs - power_square,
            (total * sum_z - sum_pz) / pairs,
            power_square,
            np.divide(covariances.gradient, power, out=np.zeros_like(power), where=power > 0.0),
        ],
        axis=-1,
    )


@typed
def compare_baselines(rollouts: Groups, group_size: int, level: float = 0.95) -> BaselineTable:
    """Compare the gradient's noise under six baselines in groups of one size, prompt by prompt.

    The noise is that of a prompt's estimate ``(1/G) sum_i W_i (Z_i - C_i)``, times G and averaged over prompts
    (docs/derivations.md, sections 3 and 35). Here W is the score, P = ||W||^2, Z the reward and C the baseline. V is the
    prompt's mean reward, and m that of the other prompts. Under each baseline the noise is:

    - none, C = 0: ``E[P Z^2] - ||g||^2``
    - mean over prompts, C = m: ``c2 + 2 (V - m) Cov(P, Z) + E[P] (V - m)^2``
    - leave-one-out mean: ``c2 + c3/(G-1)``
    - shrinkage, (1 - l) of the leave-one-out mean and l of m:
      ``c2 + 2 l (V - m) Cov(P, Z) + l^2 E[P] (V - m)^2 + (1-l)^2 c3/(G-1)``.
      The best l in [0, 1] is found for each prompt on the others (James and Stein's idea; arXiv 2511.03710).
    - value, C = V: ``c2``
    - optimal, C = b* = E[P Z]/E[P] (Greensmith et al. 2004): ``c2 - Cov(P, Z)^2/E[P]``

    The group mean that includes the response itself is not listed. It gives the leave-one-out estimate times 1 - 1/G, which is
    the same after a change of the learning rate.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        One batch of at least 3 prompts, 4 responses each; scores in full, in orthonormal coordinates, or sketches of them. A
        sketch's own error enters ||W||^2 squared in the gain of b*, which is then a little too large.
    group_size : int
        G of at least 2.
    level : float, default 0.95

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> table = gt.plan.compare_baselines(rollouts, group_size=8)
    >>> dict(zip(table.names, table.relative.estimate.round(2).tolist()))["none"]
    0.91
    """
    level, group_size = check_level(level), as_count("group_size", group_size, 2)
    pilot_terms(rollouts)
    noise, influence, share = noise_terms(baseline_terms(rollouts), group_size)
    mean = noise.mean(axis=1)
    return BaselineTable(NAMES, mean, _relative(mean, influence, level), share, group_size)


def noise_terms(terms: BaselineTerms, group_size: int) -> tuple[Array, Array, float]:
    """Return each prompt's noise under the baselines `NAMES` and its influence on their means, both (6, B), and the best share.

    The influences, of mean 0, have in them what a prompt does through the mean over prompts; the share is that of the mixture.
    """
    size, extra = terms.value.size, terms.second / (group_size - 1.0)
    weights = best_weights(*((part.sum() - part) / (size - 1.0) for part in (extra, terms.tilt, terms.offset)))
    overall = float(best_weights(*(np.atleast_1d(part.mean()) for part in (extra, terms.tilt, terms.offset)))[0])

    def mixed(weight: Array) -> Array:
        return terms.oracle + 2.0 * weight * terms.tilt + weight**2 * terms.offset + (1.0 - weight) ** 2 * extra

    one, none = np.ones(size), np.zeros(size)
    noise = np.stack([terms.uncentred, mixed(one), mixed(none), mixed(weights), terms.oracle, terms.oracle - terms.gain])
    influence = noise - noise.mean(axis=1, keepdims=True)
    influence[1] += influence_through_mean(terms, 1.0)
    influence[3] += influence_through_mean(terms, overall)
    return noise, influence, overall


def influence_through_mean(terms: BaselineTerms, share: float) -> Array:
    """Return what each prompt does to the mean noise through the mean over prompts, of which so large a share is subtracted."""
    slope = 2.0 * share * terms.tilt_slope.mean() + share**2 * terms.offset_slope.mean()
    return slope * (terms.value - terms.value.mean())


def best_weights(extra: Array, tilt: Array, offset: Array) -> Array:
    """Return the best weights of the mean over prompts, from the means of the terms."""
    both = extra + offset
    ratio = np.divide(extra - tilt, both, out=np.zeros_like(both), where=both > 0.0)
    return np.clip(ratio, 0.0, 1.0)


def _relative(mean: Array, influence: Array, level: float) -> Interval:
    """Return Fieller's limits of mean/mean[REFERENCE] - 1 from the prompts' influences (L, B), with quantiles for heavy tails.

    The delta method's limits, ratio -+ t se, held in 83% of 95% where 30 prompts' gradients had heavy-tailed lengths.
    """
    reference, size = float(mean[REFERENCE]), influence.shape[1]
    if not reference > 0.0:
        unknown = np.full(mean.size, np.nan)
        return Interval(unknown, unknown, unknown, unknown, level)
    ratio = mean / reference
    by_prompt = influence - ratio[:, None] * influence[REFERENCE]
    scale = size * (size - 1.0)
    error = np.sqrt((by_prompt**2).sum(axis=1) / scale) / reference
    with_reference, own = influence @ influence[REFERENCE] / scale, (influence**2).sum(axis=1) / scale
    quantiles = tail_quantiles(by_prompt, level)
    low, high = quotient_limits(np.maximum(mean, 0.0), reference, (own, with_reference, own[REFERENCE]), *quantiles)
    same = error == 0.0
    low, high = np.where(same, ratio, np.minimum(low, ratio)), np.where(same, ratio, np.maximum(high, ratio))
    return Interval(ratio - 1.0, error, low - 1.0, high - 1.0, level)
