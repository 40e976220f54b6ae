"""What rewards and scores together tell: the recommended baseline and batch, and how sure it is."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.intervals import Interval
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.plan.baseline_gain import LEAVE_ONE_OUT, BaselineChoice, choose_baseline, pair_terms
from grpo_theory.plan.baselines import BaselineTable, baseline_terms, compare_baselines
from grpo_theory.plan.batches import FEWEST_PROMPTS, Limits, SizeChoice
from grpo_theory.plan.efficiency import EfficiencyChoice
from grpo_theory.plan.error_constants import pilot_terms, signal_of
from grpo_theory.plan.estimator_advice import EstimatorAdvice, advise_by_efficiency
from grpo_theory.plan.group_size import GroupSizeChoice, choose_group_size, real_optimum
from grpo_theory.theory import mse_weights

FEWEST = 4
"""Responses that a prompt must have to say something about the error of a gradient."""


@dataclass(frozen=True, eq=False)
class ScoresAdvice:
    """What rewards and scores together tell.

    Attributes
    ----------
    recommended : BaselineChoice
        The recommended pair of a baseline and a batch, and what it is compared with.
    leave_one_out : GroupSizeChoice
        The batches with the leave-one-out mean.
    real_optimum : float
        The best group size with the recommended baseline were sizes not whole and only the cost a limit.
    signal : Interval
        The squared norm of the gradient over its mean squared error, with the recommended pair. The limits are those for
        sketches, which the scores are taken for.
    baselines : BaselineTable
        At the asked group size or else the recommended one.
    prompts_needed : int or None
        How many prompts a pilot needs for the recommended size to be sure of losing less than the tolerance.
    width : int
        How many numbers a score has.
    prompts, dropped : int
        The prompts that this rests on, and those left out because they have fewer than four responses.
    by_efficiency : EstimatorAdvice
        The batches of the user's estimator, if the squared error has another order, and what other estimators would gain.
    """

    recommended: BaselineChoice
    leave_one_out: GroupSizeChoice
    real_optimum: float
    signal: Interval
    baselines: BaselineTable
    prompts_needed: int | None
    width: int
    prompts: int
    dropped: int
    by_efficiency: EstimatorAdvice

    @property
    def own(self) -> EfficiencyChoice | None:
        """The batches of the user's estimator, by their efficiency; None where the recommendation is by squared error."""
        return self.by_efficiency.choice

    @property
    def choice(self) -> SizeChoice:
        """The recommended group size, its rivals, and what each size loses: by efficiency, or with the recommended baseline."""
        return self.recommended.choice if self.own is None else self.own


@dataclass(frozen=True)
class Missing:
    """Why rollouts do not tell the best group size.

    Attributes
    ----------
    scores : bool
        Whether there are none.
    prompts : int
        How many prompts have enough responses. If they are enough themselves, their rewards are the reason: in no group do they
        differ.
    """

    scores: bool
    prompts: int = 0

    @property
    def few(self) -> bool:
        """Whether too few prompts have enough responses."""
        return not self.scores and self.prompts < FEWEST_PROMPTS


def usable(groups: Groups | None) -> tuple[Groups | None, Missing | None]:
    """Return the prompts that say something about the best group size, or None and what is missing."""
    if groups is None or groups.scores is None:
        return None, Missing(scores=True)
    enough = int((groups.sizes >= FEWEST).sum())
    if enough < FEWEST_PROMPTS:
        return None, Missing(scores=False, prompts=enough)
    kept = groups.at_least(FEWEST) if isinstance(groups, RaggedRollouts) else groups
    if not kept.by_prompt(lambda group: np.ptp(group.rewards, axis=-1)).any():
        return None, Missing(scores=False, prompts=enough)
    return kept, None


def advise_from_scores(
    kept: Groups,
    prompts: int,
    limits: Limits,
    *,
    group_size: int | None,
    estimator: Estimator | None,
    baseline: str | None,
    level: float,
    tolerance: float,
) -> ScoresAdvice:
    """Say what usable rollouts, of so many prompts in the table, tell of an estimator, or of any baseline that can be run."""
    leave_one_out = choose_group_size(kept, limits, level)
    # Without a name it is for what trainers can be set to; other baselines are remarks.
    recommended = choose_baseline(kept, limits, leave_one_out, baseline or LEAVE_ONE_OUT)
    by_efficiency = advise_by_efficiency(
        kept,
        limits,
        recommended,
        estimator=estimator,
        planned=baseline is not None,
        group_size=group_size,
        level=level,
        tolerance=tolerance,
    )
    choice, pair, own = recommended.choice, recommended.pair, by_efficiency.choice
    width = kept.known_scores.shape[-1]
    terms = pair_terms(pilot_terms(kept), baseline_terms(kept), pair.name, pair.share)
    weights = mse_weights(choice.batch_size, choice.group_size)
    return ScoresAdvice(
        recommended=recommended,
        leave_one_out=leave_one_out,
        real_optimum=real_optimum(choice, limits),
        signal=by_efficiency.signal or signal_of(terms, weights, level, width),
        baselines=compare_baselines(kept, group_size or (own or choice).group_size, level),
        prompts_needed=choice.prompts_needed(tolerance) if own is None else by_efficiency.prompts_needed,
        width=width,
        prompts=kept.batch_size,
        dropped=prompts - kept.batch_size,
        by_efficiency=by_efficiency,
    )
