"""The efficiency of one training step and its best group size, from rollouts with sketches, in milliseconds."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.plan.baseline_gain import pair_terms
from grpo_theory.plan.baselines import baseline_terms
from grpo_theory.plan.batches import LARGEST_GROUP, Limits
from grpo_theory.plan.convention import baseline_of
from grpo_theory.plan.efficiency import EfficiencyChoice, StepLaw, choose_by_efficiency
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.estimator_advice import EstimatorLaws, logged_size
from grpo_theory.plan.group_size import rivals
from grpo_theory.plan.scores_advice import usable
from grpo_theory.validation import Integers, as_count


@dataclass(frozen=True)
class StepAdvice:
    """The efficiency of a training step at the group size in use and at the best one, for one estimator.

    Attributes
    ----------
    estimator : str
    group_size : int
        The one in use, which at least half of the prompts have.
    efficiency : float
        Of a step at the group size in use: its gain relative to that of a step along the exact gradient.
    best : int
        The group size of the largest efficiency.
    low, high : int
        The smallest and the largest group size that the data cannot tell from the best.
    bounded : bool
        Whether a group size above the largest considered one cannot be best. An estimator that divides is known up to the size
        of the logged groups.
    loss : float
        By what share the best size's efficiency is above that of the size in use.
    may_be_best : bool
        Whether the size in use is one that the data cannot tell from the best.
    prompts : int
        How many prompts this rests on.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> one = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> rollouts = gt.RaggedRollouts(np.repeat(np.arange(64), 8), one.rewards.ravel(), one.scores.reshape(512, -1))
    >>> advice = gt.live.advise_step(rollouts, responses=1024, estimator="grpo")
    >>> advice.group_size, advice.best, advice.may_be_best
    (8, 8, True)
    """

    estimator: str
    group_size: int
    efficiency: float
    best: int
    low: int
    high: int
    bounded: bool
    loss: float
    may_be_best: bool
    prompts: int


def advise_step(
    rollouts: RaggedRollouts, responses: int, *, estimator: str | Estimator = "rloo", level: float = 0.95
) -> StepAdvice | None:
    """Estimate the efficiency of a training step and its best group size in milliseconds, as `gt.plan.advise` does.

    Parameters
    ----------
    rollouts : RaggedRollouts
        With scores, or sketches of them. A group whose rewards are all equal may have zeros in their place, unless the estimator
        has no baseline: what is computed does not change.
    responses : int
        In one update; a group size G goes with responses // G prompts.
    estimator : str or Estimator, default "rloo"
        Whose advantages depend on the rewards of their own group alone.
    level : float, default 0.95
        Of the set of sizes and of the limit of the loss, each by itself.

    Returns
    -------
    StepAdvice or None
        None where the rollouts do not tell: fewer than three prompts with four responses, or no group with different rewards.

    Raises
    ------
    ValueError
        If the advantages depend on more than the rewards of their own group, or are not defined for these rewards. Also if the
        estimator divides and there are more than eight different rewards.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> one = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> rollouts = gt.RaggedRollouts(np.repeat(np.arange(64), 8), one.rewards.ravel(), one.scores.reshape(512, -1))
    >>> round(gt.live.advise_step(rollouts, responses=1024, estimator="rloo").efficiency, 2)
    0.76
    """
    responses, own = as_count("responses", responses, 2), find(estimator)
    kept, _ = usable(rollouts)
    if kept is None:
        return None
    in_use = min(logged_size(kept.sizes), responses)
    choice = _choice(kept, Limits(budget=responses, max_group_size=min(responses, LARGEST_GROUP)), in_use, own, level)
    if choice is None or in_use not in choice.group_sizes:
        return None
    at = choice.at(in_use)
    return StepAdvice(
        own.name,
        in_use,
        float(choice.efficiency[at]),
        choice.group_size,
        choice.low,
        choice.high,
        choice.bounded,
        float(choice.loss.estimate[at]),
        bool(choice.candidates[at]),
        kept.batch_size,
    )


def _choice(kept: Groups, limits: Limits, in_use: int, own: Estimator, level: float) -> EfficiencyChoice | None:
    """Return the choice among group sizes; None if the estimator's law is known at none that is allowed."""
    allowed, batches = limits.batches()
    baseline = baseline_of(own, in_use)
    if baseline is None:
        laws = EstimatorLaws(kept, limits, in_use)
        law = laws.of(own)
        return None if law is None else choose_by_efficiency(law, laws.batches(law.group_sizes), level)
    sizes: Integers = np.union1d(allowed[rivals(allowed.size, 0)], in_use)
    terms = pair_terms(pilot_terms(kept), baseline_terms(kept), baseline, 0.0)
    return choose_by_efficiency(StepLaw.of_unbiased(terms, sizes), batches[np.searchsorted(allowed, sizes)], level)
