"""Pairs of a baseline and a group size that a trainer can run: the best one, and how much less its error is than another's."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from grpo_theory.arrays import Array
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.intervals.interval import Interval
from grpo_theory.intervals.quotient import quotient_limits
from grpo_theory.plan.baselines import (
    NAMES,
    REFERENCE,
    BaselineTerms,
    baseline_terms,
    best_weights,
    influence_through_mean,
    noise_terms,
)
from grpo_theory.plan.cost import Limits
from grpo_theory.plan.group_size import GroupSizeChoice, choose, likely_constants, pilot_terms
from grpo_theory.samples import Groups
from grpo_theory.theory import mse_weights

LEAVE_ONE_OUT = NAMES[REFERENCE]
RUNNABLE = ("none", "mean over prompts", LEAVE_ONE_OUT, "shrinkage")
"""The baselines that need nothing that nobody knows. The group's mean is a multiple of the leave-one-out mean's estimate."""


@dataclass(frozen=True)
class Pair:
    """A baseline and an allowed batch.

    Attributes
    ----------
    name : str
        Of `RUNNABLE`.
    share : float
        Of the mean over prompts in what is subtracted: 0 for the leave-one-out mean, 1 for the mean over prompts.
    group_size, batch_size : int
    """

    name: str
    share: float
    group_size: int
    batch_size: int


@dataclass(frozen=True, eq=False)
class Rival:
    """A pair that is compared with the recommended one.

    Attributes
    ----------
    pair : Pair
    better : bool
        Whether its error is shown to be less than that of the recommended pair; else it is shown to be more.
    gain : Interval
        By what share the better one's error is less than that of the other: 0.4 is 40% less.
    """

    pair: Pair
    better: bool
    gain: Interval


@dataclass(frozen=True, eq=False)
class BaselineChoice:
    """The recommended pair, and the group sizes under its baseline.

    Attributes
    ----------
    pair : Pair
        The recommended one.
    choice : GroupSizeChoice
        Of the group sizes under its baseline; `law` has the baseline's own c2 and c3.
    rival : Rival or None
        Where all baselines are allowed: the best batch with the leave-one-out mean, if another pair is recommended. With a
        baseline of the user's: a pair that is shown to have less error.
    """

    pair: Pair
    choice: GroupSizeChoice
    rival: Rival | None


def choose_baseline(
    rollouts: Groups, limits: Limits, leave_one_out: GroupSizeChoice, baseline: str | None = None
) -> BaselineChoice:
    """Choose among all pairs of a baseline and an allowed batch, or among the batches of one baseline.

    The error of each pair is c1/B + c2/(BG) + c3/(BG(G-1)), with the baseline's own c2 and c3. A pair with another baseline than
    the leave-one-out mean is recommended only where it is shown to have less error than that mean's best batch. All these
    estimates are unbiased for one gradient, so that their squared errors can be compared.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
    limits : Limits
    leave_one_out : GroupSizeChoice
        What `choose_group_size` says of these.
    baseline : str, optional
        The user's own baseline, of `RUNNABLE`: its best batch is then recommended.
    """
    pairs = Pairs(rollouts, limits, leave_one_out)
    own = pairs.best(baseline or LEAVE_ONE_OUT)
    others = [pairs.best(name) for name in RUNNABLE if name != own.name]
    best = min(others, key=pairs.error)
    gain = pairs.gain(best, own, len(others))
    if not float(gain.low) > 0.0:
        return BaselineChoice(own, pairs.choice(own), None)
    if baseline is None:
        return BaselineChoice(best, pairs.choice(best), Rival(own, False, gain))
    return BaselineChoice(own, pairs.choice(own), Rival(best, True, gain))


class Pairs:
    """The errors of all pairs of a baseline and an allowed batch."""

    def __init__(self, rollouts: Groups, limits: Limits, leave_one_out: GroupSizeChoice) -> None:
        self.power, self.terms = pilot_terms(rollouts), baseline_terms(rollouts)
        self.limits, self.leave_one_out = limits, leave_one_out
        self.weights = mse_weights(leave_one_out.batch_sizes, leave_one_out.group_sizes)

    def best(self, name: str) -> Pair:
        """Return the batch of least error with a baseline."""
        share = self._share() if name == "shrinkage" else float(name == "mean over prompts")
        terms = pair_terms(self.power, self.terms, name, share)
        place = int(np.argmin(self.weights @ _constants(terms)))
        sizes, batches = self.leave_one_out.group_sizes, self.leave_one_out.batch_sizes
        return Pair(name, share, int(sizes[place]), int(batches[place]))

    def _share(self) -> float:
        """Return the best share of the mean over prompts at the mixture's best size."""
        sizes = self.leave_one_out.group_sizes
        second, tilt, offset, oracle = (
            float(part.mean()) for part in (self.terms.second, self.terms.tilt, self.terms.offset, self.terms.oracle)
        )
        extra = np.asarray(second / (sizes - 1.0), dtype=np.float64)
        share = best_weights(extra, np.full(sizes.size, tilt), np.full(sizes.size, offset))
        noise = oracle + 2.0 * share * tilt + share**2 * offset + (1.0 - share) ** 2 * extra
        return float(share[np.argmin(self.weights[:, 0] * self.leave_one_out.likely.c1 + self.weights[:, 1] * noise)])

    def error(self, pair: Pair) -> float:
        """Return the estimated error of a pair."""
        terms = pair_terms(self.power, self.terms, pair.name, pair.share)
        return float(mse_weights(pair.batch_size, pair.group_size) @ _constants(terms))

    def choice(self, pair: Pair) -> GroupSizeChoice:
        """Return what is to be said of all group sizes with the baseline of a pair."""
        if pair.name == LEAVE_ONE_OUT:
            return self.leave_one_out
        terms = pair_terms(self.power, self.terms, pair.name, pair.share)
        of = self.leave_one_out
        return choose(terms.components(), terms.covariance(), of.pilot, self.limits, of.level, terms.influences())

    def gain(self, first: Pair, second: Pair, picked_from: int) -> Interval:
        """Return by what share the first pair's error is less than the second's, the first being the best of several.

        The limits of the ratio of two errors are Fieller's, from each prompt's influence; each of the pairs picked from has its
        part of the error probability.
        """
        noises, influences = [], []
        for pair in (first, second):
            noise, influence, _ = noise_terms(self.terms, pair.group_size)
            row = NAMES.index(pair.name)
            noises.append(float(noise[row].mean()))
            influences.append(influence[row])
        c1 = max(float(self.power.components().c1), 0.0)
        parts = PromptTerms(self.power.gradients, self.power.power, *influences)
        top = np.array([1.0 / first.batch_size, 1.0 / (first.batch_size * first.group_size), 0.0])
        bottom = np.array([1.0 / second.batch_size, 0.0, 1.0 / (second.batch_size * second.group_size)])
        t = float(stdtrit(self.leave_one_out.pilot - 1, 1.0 - (1.0 - self.leave_one_out.level) / (2.0 * picked_from)))
        return _gain(np.array([c1, *noises]), parts.covariance(), (top, bottom), t, self.leave_one_out.level)


def pair_terms(power: PromptTerms, terms: BaselineTerms, name: str, share: float) -> PromptTerms:
    """Return what each prompt says of c1 and of a baseline's own c2 and c3: what falls with BG, and with BG(G-1)."""
    if name == "none":
        return power._replace(c2=terms.uncentred, c3=np.zeros_like(terms.uncentred))
    c2 = terms.oracle + 2.0 * share * terms.tilt + share**2 * terms.offset + influence_through_mean(terms, share)
    return power._replace(c2=c2, c3=(1.0 - share) ** 2 * terms.second)


def _constants(terms: PromptTerms) -> Array:
    likely = likely_constants(terms.components(), terms.covariance())
    return np.array([likely.c1, likely.c2, likely.c3])


def _gain(constants: Array, covariance: Array, pair: tuple[Array, Array], t: float, level: float) -> Interval:
    """Return 1 less the ratio of two errors, each linear in c1 and two noises with a covariance (3, 3)."""
    top, bottom = pair
    variances = (float(top @ covariance @ top), float(top @ covariance @ bottom), float(bottom @ covariance @ bottom))
    above, below = max(float(top @ constants), 0.0), max(float(bottom @ constants), 0.0)
    low, high = quotient_limits(above, below, variances, -t, t)
    if not below > 0.0:
        return Interval(np.asarray(np.nan), np.asarray(np.nan), 1.0 - high, 1.0 - low, level)
    ratio = above / below
    error = sqrt(max(variances[0] - 2.0 * ratio * variances[1] + ratio**2 * variances[2], 0.0)) / below
    return Interval(np.asarray(1.0 - ratio), np.asarray(error), 1.0 - high, 1.0 - low, level)
