"""What rewards alone tell about a training step: uniform groups, success rates, prompts' weights and the learning rate."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from grpo_theory.intervals import Interval
from grpo_theory.plan.cost import Limits
from grpo_theory.plan.learning_rate import LearningRateFactor, learning_rate_factor
from grpo_theory.plan.prompt_weights import PromptWeights, weigh_prompts
from grpo_theory.plan.success_rates import SuccessRates, fit_success_rates
from grpo_theory.plan.uniform_share import UniformShares, estimate_uniform_shares
from grpo_theory.samples import RewardCounts

SHOWN = (2, 4, 8, 16, 32, 64, 128)
"""Group sizes that are always shown, where they are allowed."""


@dataclass(frozen=True, eq=False)
class RewardsAdvice:
    """What rewards alone tell.

    Attributes
    ----------
    prompts, responses, smallest, largest : int
        Of the table: prompts, responses, and the sizes of the smallest and the largest group.
    mean : Interval
        Of the mean reward, prompts equally weighted.
    uniform : UniformShares
        The share of groups whose rewards are all equal, at the group sizes that are shown.
    in_mixed_groups : float
        The share of the logged responses whose group has different rewards.
    rates : SuccessRates or None
        The law of the prompts' success rates.
    weights : PromptWeights or None
        What the estimator's expected update weighs prompts with, at the group size asked about.
    learning_rate : LearningRateFactor or None
        By what to multiply the learning rate when going from the group size in use to the recommended one.
    missing : str
        Why there are no rates and weights; empty if there are.
    """

    prompts: int
    responses: int
    smallest: int
    largest: int
    mean: Interval
    uniform: UniformShares
    in_mixed_groups: float
    rates: SuccessRates | None
    weights: PromptWeights | None
    learning_rate: LearningRateFactor | None
    missing: str


def advise_from_rewards(
    counts: RewardCounts, estimator: str, limits: Limits, asked: int | None, recommended: int | None, level: float
) -> RewardsAdvice:
    """Say what rewards alone tell, at the group size asked about, if any, and of a change to the recommended one, if there is one."""
    allowed, _ = limits.batches()
    sizes = sorted({*SHOWN, *(size for size in (asked, recommended) if size is not None)} & set(allowed.tolist()))
    rates, weights, factor, missing = None, None, None, ""
    try:
        rates = fit_success_rates(counts)
        if asked is not None:
            weights = weigh_prompts(counts, estimator, asked, level, law=rates)
            if recommended is not None and recommended != asked:
                factor = learning_rate_factor(counts, (estimator, asked), (estimator, recommended), level, law=rates)
    except ValueError as error:
        missing = str(error)
    return RewardsAdvice(
        prompts=counts.prompts,
        responses=int(counts.sizes.sum()),
        smallest=int(counts.sizes.min()),
        largest=int(counts.sizes.max()),
        mean=_mean(counts, level),
        uniform=estimate_uniform_shares(counts, np.array(sizes or allowed[:1]), level),
        in_mixed_groups=float(counts.sizes[~counts.uniform].sum() / counts.sizes.sum()),
        rates=rates,
        weights=weights,
        learning_rate=factor,
        missing=missing,
    )


def _mean(counts: RewardCounts, level: float) -> Interval:
    means = counts.means
    error = means.std(ddof=1) / np.sqrt(means.size)
    half = float(stdtrit(means.size - 1, (1.0 + level) / 2.0)) * error
    return Interval(np.asarray(means.mean()), np.asarray(error), means.mean() - half, means.mean() + half, level)
