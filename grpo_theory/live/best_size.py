"""Which group size gains most in one step of the estimator in use, from the sketches of a run's newest groups."""

from collections.abc import Sequence

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.plan.advice import usable
from grpo_theory.plan.batches import LARGEST_GROUP, Limits
from grpo_theory.plan.efficiency import EfficiencyChoice, EstimatorLaws, StepLaw, baseline_of, choose_by_efficiency, logged_size
from grpo_theory.plan.group_size import baseline_terms, rivals
from grpo_theory.validation import Array


def best_size(
    groups: Sequence[tuple[Array, Array | None]], responses: int, estimator: Estimator, level: float = 0.95
) -> tuple[EfficiencyChoice, int] | None:
    """Return the choice among group sizes G with responses // G prompts, and the size in use, which half of the groups have.

    A group is its rewards (n,) and their sketches (n, width). These are None where they make no difference: rewards are all
    equal and the estimator has a baseline. The result is None if the groups do not tell: fewer than three have four responses,
    or none has different rewards. An estimator that divides is known up to the size in use, and for eight different rewards.
    """
    width = next((one.shape[1] for _, one in groups if one is not None), 1)
    rewards = np.concatenate([own for own, _ in groups])
    sketches = np.concatenate([np.zeros((own.size, width)) if one is None else one for own, one in groups])
    index = np.repeat(np.arange(len(groups)), [own.size for own, _ in groups])
    kept, _ = usable(RaggedRollouts.from_index(range(len(groups)), index, rewards, sketches))
    if kept is None:
        return None
    in_use = min(logged_size(kept.sizes), responses)
    limits, baseline = Limits(budget=responses, max_group_size=min(responses, LARGEST_GROUP)), baseline_of(estimator, in_use)
    allowed, batches = limits.batches()
    if baseline is None:
        law = EstimatorLaws(kept, limits, in_use).of(estimator)
    else:
        sizes = np.union1d(allowed[rivals(allowed.size, 0)], in_use)
        law = StepLaw.of_unbiased(baseline_terms(kept)[baseline], sizes)
    if law is None or in_use not in law.group_sizes:
        return None
    return choose_by_efficiency(law, batches[np.searchsorted(allowed, law.group_sizes)], level), in_use
