"""The best batch of a user's own estimator, by its efficiency, and what another estimator with its own best batch would gain."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.interval import Interval
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.intervals.u_statistics import prompt_gradients
from grpo_theory.plan.baseline_gain import BaselineChoice, Pair, pair_terms
from grpo_theory.plan.baselines import BaselineTerms, baseline_terms
from grpo_theory.plan.batches import FEWEST_PROMPTS, Limits
from grpo_theory.plan.convention import weighs_by_length
from grpo_theory.plan.efficiency import (
    EfficiencyChoice,
    Estimates,
    StepLaw,
    choose_by_efficiency,
    efficiency_gain,
    efficiency_signal,
)
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.group_size import rivals
from grpo_theory.plan.subgroups import MOST_VALUES, RewardClasses, can_be_averaged, check_reads_own_rewards, group_table
from grpo_theory.validation import Integers

OTHERS = ("rloo", "trl_grpo", "nemo_rl", "max_rl")
"""The estimators compared with: they divide by nothing, the group's deviation, the other responses' deviation, and the mean."""


@dataclass(frozen=True, eq=False)
class Switch:
    """Another estimator with its own best batch.

    Attributes
    ----------
    name : str
    group_size, batch_size : int
    gain : Interval
        By what share its efficiency is above that of the recommendation: 0.1 is 10% more, below 0 it is less.
    """

    name: str
    group_size: int
    batch_size: int
    gain: Interval

    @property
    def shown(self) -> bool:
        """Whether the data show that it gains more in a step."""
        return float(self.gain.low) > 0.0


@dataclass(frozen=True, eq=False)
class EstimatorAdvice:
    """Advice by efficiency, from the prompts that have as many responses as half of all prompts have.

    Attributes
    ----------
    choice : EfficiencyChoice or None
        The batches of the user's estimator; None where none is named, or where the squared error has the same order.
    signal : Interval or None
        Efficiency/(1 - efficiency) of the user's estimator with the recommended batch; None without a choice.
    prompts_needed : int or None
        How many prompts a pilot needs for the recommended size to be sure of losing less than the tolerance.
    by_length : bool
        Whether the user's estimator weighs tokens by the lengths of responses, which is left out.
    others : tuple of Switch
        Other estimators, of `OTHERS`; empty where the table has too many different rewards.
    refusal : str
        Why there is no choice although the squared error has another order; empty if there is one, or none is needed.
    largest : int
        The number of responses to each prompt that this rests on: the largest group size that is considered.
    prompts : int
        The number of prompts.
    """

    choice: EfficiencyChoice | None
    signal: Interval | None
    prompts_needed: int | None
    by_length: bool
    others: tuple[Switch, ...]
    refusal: str
    largest: int
    prompts: int


def logged_size(sizes: Integers) -> int:
    """Return the largest number of responses that at least half the prompts have, and at least three."""
    most = max(FEWEST_PROMPTS, (sizes.size + 1) // 2)
    return int(np.sort(sizes)[::-1][most - 1])


class EstimatorLaws:
    """The laws of estimators' steps on usable rollouts, at the allowed group sizes."""

    def __init__(self, kept: Groups, limits: Limits, group_size: int | None) -> None:
        self.largest = logged_size(kept.sizes)
        self.rollouts = kept.at_least(self.largest) if isinstance(kept, RaggedRollouts) else kept
        self.limits, self.asked = limits, group_size
        self.classes = RewardClasses.of(self.rollouts)
        self.gradients = prompt_gradients(self.rollouts)

    def sizes(self, least: int, most: int) -> Integers:
        """Return the allowed group sizes from the least to the most, or some of them spread evenly in the logarithm."""
        allowed, _ = self.limits.batches()
        within = allowed[(allowed >= least) & (allowed <= most)]
        if within.size == 0:
            return within
        some = within[rivals(within.size, 0)]
        return np.union1d(some, within[within == self.asked])

    def batches(self, sizes: Integers) -> Integers:
        """Return the number of prompts at each group size."""
        allowed, batches = self.limits.batches()
        return batches[np.searchsorted(allowed, sizes)]

    def averaged_sizes(self, estimator: Estimator) -> Integers:
        """Return the sizes of which all subgroups of the logged groups are averaged over."""
        sizes = self.sizes(estimator.advantage.minimum_group_size, self.largest)
        return sizes[[can_be_averaged(self.classes, size) for size in sizes.tolist()]]

    def of(self, estimator: Estimator) -> StepLaw | None:
        """Return the law of an estimator's advantages up to the logged group size; None if no such size is allowed."""
        sizes = self.averaged_sizes(estimator)
        return StepLaw.of_subgroups(self.classes, self.gradients, estimator, sizes) if sizes.size else None

    def of_pair(self, name: str, share: float, sizes: Integers) -> StepLaw:
        """Return the law of an estimator without division, with a baseline, at any sizes."""
        terms = pair_terms(pilot_terms(self.rollouts), self._baselines, name, share)
        return StepLaw.of_unbiased(terms, sizes)

    @cached_property
    def _baselines(self) -> BaselineTerms:
        return baseline_terms(self.rollouts)

    def choice(self, name: str, level: float) -> EfficiencyChoice | None:
        """Return the best batch of an estimator to be compared with; None if it is not defined for these rewards."""
        if name == "rloo":
            law: StepLaw | None = self.of_pair("leave-one-out mean", 0.0, self.sizes(2, int(self.limits.max_group_size)))
        else:
            try:
                law = self.of(find(name))
            except ValueError:  # as one that divides by the mean, of rewards below 0
                return None
        return None if law is None else choose_by_efficiency(law, self.batches(law.group_sizes), level)

    def others(self, own: Estimator | None, level: float) -> dict[str, EfficiencyChoice]:
        """Return the choices of `OTHERS` but the user's estimator; of all but RLOO if the user's is planned by its error."""
        names = [name for name in OTHERS if not (name == "rloo" if own is None else self._same(name, own))]
        found = {name: self.choice(name, level) for name in names}
        return {name: choice for name, choice in found.items() if choice is not None}

    def _same(self, name: str, own: Estimator) -> bool:
        """Return whether an estimator gives responses the advantages of the user's, whatever either is called."""
        other, values = find(name), self.classes.values
        sizes = np.intersect1d(self.averaged_sizes(other), self.averaged_sizes(own))
        try:
            tables = [[group_table(one, values, size).advantages for one in (other, own)] for size in sizes.tolist()]
        except ValueError:
            return False
        return bool(tables) and all(np.allclose(first, second, rtol=1e-9, atol=1e-12) for first, second in tables)

    def of_recommended(self, pair: Pair) -> tuple[Estimates, float]:
        """Return the root of the efficiency of a baseline with its batch, times ||g||, and its likely value."""
        law = self.of_pair(pair.name, pair.share, np.array([pair.group_size]))
        roots, likely = law.root_efficiency(np.array([pair.batch_size]))
        return Estimates(roots.values[0], roots.influences[0]), float(likely[0])


def advise_by_efficiency(
    kept: Groups,
    limits: Limits,
    recommended: BaselineChoice,
    *,
    estimator: Estimator | None,
    planned: bool,
    group_size: int | None,
    level: float,
    tolerance: float,
) -> EstimatorAdvice:
    """Plan an estimator's batch by efficiency, unless the recommendation is planned for it already, and compare with others.

    Raises
    ------
    ValueError
        If the estimator's advantages depend on more than the rewards of their own group, or are not defined for these rewards.
    """
    own = estimator if estimator is not None and not planned else None
    if own is not None:
        check_reads_own_rewards(own)
    different = np.unique(kept.rewards).size
    largest, by_length = logged_size(kept.sizes), own is not None and weighs_by_length(own)
    if different > MOST_VALUES:
        why = (
            f"the table has {different:,} different rewards, and the law of {own.name} is known for at most {MOST_VALUES}"
            if own
            else ""
        )
        return EstimatorAdvice(None, None, None, by_length, (), why, largest, kept.batch_size)
    laws = EstimatorLaws(kept, limits, group_size)
    law = None if own is None else laws.of(own)
    if own is not None and law is None:
        why = f"budget and limits allow no group of at most {largest}, the number of responses that the prompts have"
        return EstimatorAdvice(None, None, None, by_length, (), why, largest, laws.rollouts.batch_size)
    if law is None:
        choice, signal, needed = None, None, None
        base = laws.of_recommended(recommended.pair)
    else:
        choice = choose_by_efficiency(law, laws.batches(law.group_sizes), level)
        base, needed = (choice.root, choice.likely_root), choice.prompts_needed(tolerance)
        signal = efficiency_signal(law, choice.best, choice.batch_size, level, kept.known_scores.shape[-1])
    others = switches(laws.others(own, level), *base, level)
    return EstimatorAdvice(choice, signal, needed, by_length, others, "", largest, laws.rollouts.batch_size)


def switches(choices: Mapping[str, EfficiencyChoice], root: Estimates, likely: float, level: float) -> tuple[Switch, ...]:
    """Return what other estimators would gain over one whose efficiency has a root: all limits hold at once, at the level.

    Each has an equal part of the error probability. What is promised is said of the batches that are named, not of batches that
    would be best.
    """
    found = []
    for name, choice in choices.items():
        each = 1.0 - (1.0 - level) / len(choices)
        gain = efficiency_gain(choice.root, root, choice.likely_root / likely, each)
        found.append(Switch(name, choice.group_size, choice.batch_size, gain))
    return tuple(found)
