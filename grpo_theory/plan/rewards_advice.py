"""What rewards alone tell about a training step and an evaluation."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.logs.reward_counts import filtered
from grpo_theory.plan.batches import Limits
from grpo_theory.plan.effective import (
    SampleSize,
    UniformShares,
    effective_sample_size,
    estimate_uniform_shares,
    unknown_uniform_shares,
)
from grpo_theory.plan.expected_step import LearningRateFactor, PromptWeights, learning_rate_factor, weigh_prompts
from grpo_theory.plan.graded_weights import GradedWeights, weigh_graded_prompts
from grpo_theory.plan.seeds import evaluation_error, evaluation_variance, prompts_needed
from grpo_theory.plan.success_rates import SuccessRates, fit_success_rates

SHOWN = (2, 4, 8, 16, 32, 64, 128)
"""Group sizes that are always shown, where they are allowed."""
DIFFERENCE = 0.02
"""The difference that an evaluation is to find, as a share of the range of the rewards."""
CORRELATIONS = (0.0, 0.9)
"""Of two policies' expected rewards over prompts: nothing in common, and one a few steps on from the other."""
CHOSEN = (
    "no group has equal rewards, and by the groups that were logged some should. Such groups were left out before logging, and "
    "those that were kept do not tell how often prompts succeed"
)
"""Why success rates are unknown where groups were chosen by their rewards."""
EVALUATED = (1, 8)
"""Responses a prompt in an evaluation."""


@dataclass(frozen=True)
class Evaluation:
    """How many prompts tell two policies apart.

    Attributes
    ----------
    correlation : float
        Of their expected rewards over prompts: an assumption.
    responses : int
        To each prompt, from each policy.
    difference : float
        Of their mean rewards.
    prompts : int
    error : float
        The standard error of one policy's mean reward on so many prompts.
    """

    correlation: float
    responses: int
    difference: float
    prompts: int
    error: float


@dataclass(frozen=True, eq=False)
class RewardsAdvice:
    """What rewards alone tell.

    Attributes
    ----------
    sample : SampleSize
        Of the table.
    group_sizes : (int, int)
        Sizes of the smallest and the largest group.
    range : (float, float)
        The least and the greatest reward.
    distinct : int
        How many different rewards there are.
    uniform : UniformShares
        The share of groups whose rewards are all equal, at the group sizes that are shown.
    evaluations : tuple of Evaluation
        How many prompts tell two policies apart; empty where groups were chosen by their rewards.
    rates : SuccessRates or None
        The law of the prompts' success rates; None unless there are exactly two rewards.
    weights : PromptWeights, GradedWeights or None
        How the estimator's expected update weights prompts, at the group size asked about. With more than two rewards, it is
        how the expected step is shared among prompts.
    learning_rate : LearningRateFactor or None
        By what to multiply the learning rate when going from the group size in use to the recommended one.
    refusal : str
        Why the estimator has no weights; empty if it has, or if no group size was asked about.
    """

    sample: SampleSize
    group_sizes: tuple[int, int]
    range: tuple[float, float]
    distinct: int
    uniform: UniformShares
    evaluations: tuple[Evaluation, ...]
    rates: SuccessRates | None
    weights: PromptWeights | GradedWeights | None
    learning_rate: LearningRateFactor | None
    refusal: str

    @property
    def chosen(self) -> bool:
        """Whether groups were chosen by their rewards before logging."""
        return self.refusal == CHOSEN

    @property
    def binary(self) -> bool:
        """Whether there are two rewards, failure and success."""
        return self.distinct == 2


def advise_from_rewards(
    counts: RewardCounts, estimator: str, limits: Limits, asked: int | None, recommended: int | None, level: float
) -> RewardsAdvice:
    """Say what rewards alone tell, at the group size asked about and of a change to the recommended one, where there are such."""
    allowed, _ = limits.batches()
    sizes = sorted({*SHOWN, *(size for size in (asked, recommended) if size is not None)} & set(allowed.tolist()))
    chosen = filtered(counts) > 0.0
    rates = fit_success_rates(counts) if counts.binary and not chosen else None
    weights: PromptWeights | GradedWeights | None = None
    factor, refusal = None, CHOSEN if chosen else ""
    try:
        if asked is not None and not counts.binary and not chosen:
            weights = weigh_graded_prompts(counts, estimator, asked, level)
        if asked is not None and rates is not None:
            weights = weigh_prompts(counts, estimator, asked, level, law=rates)
            if recommended is not None and recommended != asked:
                factor = learning_rate_factor(counts, (estimator, asked), (estimator, recommended), level, law=rates)
    except ValueError as error:  # an estimator whose update is not a function of the success rate
        refusal = str(error)
    return RewardsAdvice(
        sample=effective_sample_size(counts, level),
        group_sizes=(int(counts.sizes.min()), int(counts.sizes.max())),
        range=(float(counts.values[0]), float(counts.values[-1])),
        distinct=int(counts.values.size),
        uniform=(unknown_uniform_shares if chosen else estimate_uniform_shares)(counts, np.array(sizes or allowed[:1]), level),
        evaluations=() if chosen else _evaluations(counts, level),
        rates=rates,
        weights=weights,
        learning_rate=factor,
        refusal=refusal,
    )


def _evaluations(counts: RewardCounts, level: float) -> tuple[Evaluation, ...]:
    difference = DIFFERENCE * float(counts.values[-1] - counts.values[0])
    evaluations = []
    for correlation in CORRELATIONS:
        variance = evaluation_variance(counts, correlation)
        for responses in EVALUATED:
            prompts = prompts_needed(variance, difference, responses, level=level)
            error = evaluation_error(counts, prompts, responses)
            evaluations.append(Evaluation(correlation, responses, difference, prompts, error))
    return tuple(evaluations)
