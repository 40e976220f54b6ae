"""Pairs of a baseline and a group size that a trainer can run: the best one, and how much less its error is than another's."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from grpo_theory.intervals.interval import Interval, quotient_limits, tail_quantiles
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.intervals.u_statistics import PromptTerms
from grpo_theory.plan.baselines import (
    NAMES,
    REFERENCE,
    BaselineTerms,
    baseline_terms,
    best_weights,
    influence_through_mean,
    noise_terms,
)
from grpo_theory.plan.batches import Limits
from grpo_theory.plan.error_constants import likely_constants, pilot_terms, vector
from grpo_theory.plan.group_size import GroupSizeChoice, choose
from grpo_theory.theory import mse_weights
from grpo_theory.validation import Array

LEAVE_ONE_OUT = NAMES[REFERENCE]
RUNNABLE = (LEAVE_ONE_OUT, "mean over prompts", "shrinkage", "none")
"""The baselines that a trainer can compute, in the order in which they are preferred where the data cannot tell.

Trainers have the leave-one-out mean, or the group mean, whose estimate is a multiple of that. A mixture needs a share. Without
a baseline the error depends on where the rewards have their zero.
"""


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
        Whether its estimated error is less than that of the recommended pair.
    gain : Interval
        By what share the better one's error is less than that of the other: 0.4 is 40% less. Below 0 it is more.
    """

    pair: Pair
    better: bool
    gain: Interval

    @property
    def shown(self) -> bool:
        """Whether the data show which one has less error."""
        return float(self.gain.low) > 0.0


@dataclass(frozen=True, eq=False)
class BaselineChoice:
    """The recommended pair, and the group sizes under its baseline.

    Attributes
    ----------
    pair : Pair
        The recommended one.
    choice : GroupSizeChoice
        Of the group sizes under its baseline; `law` has the baseline's own c2 and c3.
    rivals : tuple of Rival
        Where all baselines are allowed there are up to two. The best batch with the leave-one-out mean is one if another pair
        is recommended; that pair is then shown to have less error. The pair of least estimated error is one if it is not
        recommended; it is not shown to have less error. Where the user names a baseline, the pair that would be recommended
        otherwise is the only rival, if it is shown to have less error.
    """

    pair: Pair
    choice: GroupSizeChoice
    rivals: tuple[Rival, ...]


def choose_baseline(
    rollouts: Groups, limits: Limits, leave_one_out: GroupSizeChoice, baseline: str | None = None
) -> BaselineChoice:
    """Choose among all pairs of a baseline and an allowed batch, or among the batches of one baseline.

    The error of each pair is c1/B + c2/(BG) + c3/(BG(G-1)), with the baseline's own c2 and c3. All these estimates are unbiased
    for one gradient, so that their squared errors can be compared. Each baseline is taken with its best batch. The
    leave-one-out mean is recommended unless another baseline is shown to have less error. Among those that are, it is the first
    of `RUNNABLE` that is not shown to have more error than another.

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
    pair, rivals = pairs.recommended()
    if baseline is not None and baseline != pair.name:
        own = pairs.best(baseline)
        better = Rival(pair, True, pairs.gain(pair, own))
        return BaselineChoice(own, pairs.choice(own), (better,) if better.shown else ())
    return BaselineChoice(pair, pairs.choice(pair), rivals if baseline is None else ())


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
        index = int(np.argmin(self.weights @ _constants(terms)))
        sizes, batches = self.leave_one_out.group_sizes, self.leave_one_out.batch_sizes
        return Pair(name, share, int(sizes[index]), int(batches[index]))

    def _share(self) -> float:
        """Return the best share of the mean over prompts at the mixture's best size."""
        sizes = self.leave_one_out.group_sizes
        second, tilt, offset, oracle = (
            float(part.mean()) for part in (self.terms.second, self.terms.tilt, self.terms.offset, self.terms.oracle)
        )
        extra = np.asarray(second / (sizes - 1.0), dtype=np.float64)
        share = best_weights(extra, np.full(sizes.size, tilt), np.full(sizes.size, offset))
        noise = oracle + 2.0 * share * tilt + share**2 * offset + (1.0 - share) ** 2 * extra
        return float(share[np.argmin(self.weights[:, 0] * self.leave_one_out.constants.likely.c1 + self.weights[:, 1] * noise)])

    def error(self, pair: Pair) -> float:
        """Return the estimated error of a pair."""
        terms = pair_terms(self.power, self.terms, pair.name, pair.share)
        return float(mse_weights(pair.batch_size, pair.group_size) @ _constants(terms))

    def choice(self, pair: Pair) -> GroupSizeChoice:
        """Return what is to be said of all group sizes with the baseline of a pair."""
        if pair.name == LEAVE_ONE_OUT:
            return self.leave_one_out
        terms = pair_terms(self.power, self.terms, pair.name, pair.share)
        of = self.leave_one_out.constants
        return choose(terms.components(), terms.covariance(), of.pilot, self.limits, of.level, terms.influences())

    def recommended(self) -> tuple[Pair, tuple[Rival, ...]]:
        """Return the pair that is recommended where all baselines are allowed, and what it is compared with."""
        best = [self.best(name) for name in RUNNABLE]
        usual, least = best[0], min(best, key=self.error)
        better = [one for one in best[1:] if float(self.gain(one, usual).low) > 0.0]
        pair = usual
        if better:
            unbeaten = (one for one in better if not self._beaten(one, best))
            pair = next(unbeaten, min(better, key=self.error))
        rivals = [] if pair == usual else [Rival(usual, False, self.gain(pair, usual))]
        alternative = Rival(least, True, self.gain(least, pair))
        if pair != least and float(alternative.gain.estimate) > 0.0:
            rivals.append(alternative)
        return pair, tuple(rivals)

    def _beaten(self, pair: Pair, others: list[Pair]) -> bool:
        """Return whether a pair is shown to have more error than one of the others."""
        return any(float(self.gain(other, pair).low) > 0.0 for other in others if other != pair)

    def gain(self, first: Pair, second: Pair) -> Interval:
        """Return by what share the first pair's error is less than the second's.

        The limits of the ratio of two errors are Fieller's, from each prompt's influence, with quantiles for heavy tails. As
        the first is picked from several, each of these has its part of the error probability.
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
        constants, level = np.array([c1, *noises]), self.leave_one_out.constants.level
        below = float(bottom @ constants)
        ratio = float(top @ constants) / below if below > 0.0 else 1.0
        quantiles = tail_quantiles((top - ratio * bottom) @ parts.influences(), 1.0 - (1.0 - level) / (len(RUNNABLE) - 1))
        return _gain(constants, parts.covariance(), (top, bottom), quantiles, level)


def pair_terms(power: PromptTerms, terms: BaselineTerms, name: str, share: float) -> PromptTerms:
    """Return what each prompt says of c1 and of a baseline's own c2 and c3: what falls with BG, and with BG(G-1)."""
    if name == "none":
        return power._replace(c2=terms.uncentred, c3=np.zeros_like(terms.uncentred))
    c2 = terms.oracle + 2.0 * share * terms.tilt + share**2 * terms.offset + influence_through_mean(terms, share)
    return power._replace(c2=c2, c3=(1.0 - share) ** 2 * terms.second)


def _constants(terms: PromptTerms) -> Array:
    return vector(likely_constants(terms.components(), terms.covariance()))


def _gain(
    constants: Array, covariance: Array, pair: tuple[Array, Array], quantiles: tuple[Array, Array], level: float
) -> Interval:
    """Return 1 less the ratio of two errors, each linear in c1 and two noises with a covariance (3, 3)."""
    top, bottom = pair
    variances = (float(top @ covariance @ top), float(top @ covariance @ bottom), float(bottom @ covariance @ bottom))
    above, below = max(float(top @ constants), 0.0), max(float(bottom @ constants), 0.0)
    low, high = quotient_limits(above, below, variances, *quantiles)
    if not below > 0.0:
        return Interval(np.asarray(np.nan), np.asarray(np.nan), 1.0 - high, 1.0 - low, level)
    ratio = above / below
    error = sqrt(max(variances[0] - 2.0 * ratio * variances[1] + ratio**2 * variances[2], 0.0)) / below
    return Interval(np.asarray(1.0 - ratio), np.asarray(error), 1.0 - high, 1.0 - low, level)
