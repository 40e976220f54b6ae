"""The best pair of a group size and a baseline that can be had, and how much less its error is than leave-one-out's least."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from grpo_theory.arrays import Array, Integers
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.intervals.interval import Interval
from grpo_theory.intervals.quotient import quotient_limits
from grpo_theory.plan.baselines import NAMES, REFERENCE, BaselineTerms, baseline_terms, best_weights, noise_terms
from grpo_theory.plan.group_size import GroupSizeChoice, pilot_terms
from grpo_theory.samples import Groups

OTHERS = ("none", "mean over prompts", "shrinkage")
"""The baselines that need nothing that nobody knows, beside the leave-one-out mean, of which the group's mean is a multiple."""


@dataclass(frozen=True, eq=False)
class BaselineGain:
    """A baseline other than the leave-one-out mean, its best group size, and what the two gain.

    Attributes
    ----------
    name : str
        Of `OTHERS`.
    group_size, batch_size : int
        The allowed batch of least error under this baseline.
    gain : Interval
        By what share its error is less than that of the leave-one-out mean at the recommended batch: 0.4 is 40% less.
    """

    name: str
    group_size: int
    batch_size: int
    gain: Interval


def best_baseline(rollouts: Groups, choice: GroupSizeChoice) -> BaselineGain | None:
    """Return the pair of baseline and allowed group size of least error, or None if the data do not show that it gains.

    The error is c1/B + noise/(BG), with the noise of `compare_baselines` at G. The limits of the ratio of two errors are
    Fieller's, from each prompt's influence; as the best of three baselines is picked, each has a third of the error probability.
    """
    power = pilot_terms(rollouts)
    terms = baseline_terms(rollouts)
    c1 = max(float(power.components().c1), 0.0)
    sizes, batches = choice.group_sizes, choice.batch_sizes
    errors = c1 / batches + _noises(terms, sizes) / (batches * sizes)
    row, place = np.unravel_index(int(np.argmin(errors)), errors.shape)
    name, size, batch = OTHERS[row], int(sizes[place]), int(batches[place])
    there, influence_there, _ = noise_terms(terms, size)
    here, influence_here, _ = noise_terms(terms, choice.group_size)
    which = NAMES.index(name)
    noise = np.array([there[which].mean(), here[REFERENCE].mean()])
    parts = PromptTerms(power.gradients, power.power, influence_there[which], influence_here[REFERENCE])
    top = np.array([1.0 / batch, 1.0 / (batch * size), 0.0])
    bottom = np.array([1.0 / choice.batch_size, 0.0, 1.0 / (choice.batch_size * choice.group_size)])
    gain = _gain(np.array([c1, *noise]), parts.covariance(), (top, bottom), rollouts.batch_size, choice.level)
    return BaselineGain(name, size, batch, gain) if float(gain.low) > 0.0 else None


def _noises(terms: BaselineTerms, sizes: Integers) -> Array:
    """Return the noise under each of the others at group sizes (K,), shape (3, K); the mixture with its best share at each."""
    second, tilt, offset, oracle = (float(part.mean()) for part in (terms.second, terms.tilt, terms.offset, terms.oracle))
    extra = np.asarray(second / (sizes - 1.0), dtype=np.float64)
    weight = best_weights(extra, np.full(sizes.size, tilt), np.full(sizes.size, offset))
    mixed = oracle + 2.0 * weight * tilt + weight**2 * offset + (1.0 - weight) ** 2 * extra
    flat = np.ones(sizes.size)
    return np.stack([float(terms.uncentred.mean()) * flat, (oracle + 2.0 * tilt + offset) * flat, mixed])


def _gain(constants: Array, covariance: Array, pair: tuple[Array, Array], prompts: int, level: float) -> Interval:
    """Return 1 less the ratio of two errors, each linear in c1 and two noises with a covariance (3, 3)."""
    top, bottom = pair
    t = float(stdtrit(prompts - 1, 1.0 - (1.0 - level) / (2.0 * len(OTHERS))))
    variances = (float(top @ covariance @ top), float(top @ covariance @ bottom), float(bottom @ covariance @ bottom))
    above, below = max(float(top @ constants), 0.0), max(float(bottom @ constants), 0.0)
    low, high = quotient_limits(above, below, variances, -t, t)
    if not below > 0.0:
        return Interval(np.asarray(np.nan), np.asarray(np.nan), 1.0 - high, 1.0 - low, level)
    ratio = above / below
    error = sqrt(max(variances[0] - 2.0 * ratio * variances[1] + ratio**2 * variances[2], 0.0)) / below
    return Interval(np.asarray(1.0 - ratio), np.asarray(error), 1.0 - high, 1.0 - low, level)
