"""Advice from a user's rollouts: everything that the plan says, as data."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.baseline_gain import LEAVE_ONE_OUT, BaselineChoice, choose_baseline, pair_terms
from grpo_theory.plan.baselines import BaselineTable, baseline_terms, compare_baselines
from grpo_theory.plan.convention import baseline_of
from grpo_theory.plan.cost import Limits
from grpo_theory.plan.group_size import GroupSizeChoice, choose_group_size, pilot_terms, real_optimum
from grpo_theory.plan.rewards_advice import RewardsAdvice, advise_from_rewards
from grpo_theory.plan.signal import signal_of
from grpo_theory.samples import Findings, Groups, RaggedRollouts, RewardCounts, RolloutLog, Rollouts
from grpo_theory.theory import mse_weights
from grpo_theory.validation import as_count, as_fraction, shown

FEWEST = 4
"""Responses that a prompt must have to say something about the error of a gradient."""
FEWEST_PROMPTS = 3
NO_SCORES = "the table has no gradients"
TOLERANCE = 0.05
UNNAMED = "rloo"
"""What the rewards' weights are those of where no estimator is named."""
SHORT = 0.05
"""A warning is given where Student's limits would hold less often than the level by so much: 90% for 95%."""


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
        The squared norm of the gradient over its mean squared error, with the recommended pair; with limits as for sketches,
        which the scores are taken for.
    baselines : BaselineTable
        At the asked group size or else the recommended one.
    prompts_needed : int or None
        How many prompts a pilot needs for the recommended size to be sure of losing less than the tolerance.
    width : int
        How many numbers a score has.
    prompts, dropped : int
        The prompts that this rests on, and those left out because they have fewer than four responses.
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

    @property
    def choice(self) -> GroupSizeChoice:
        """The recommended group size, its rivals, and what each size loses, with the recommended baseline."""
        return self.recommended.choice


@dataclass(frozen=True, eq=False)
class Advice:
    """What the plan says; `str(advice)` is what the command prints.

    Attributes
    ----------
    limits : Limits
        What a batch may cost and must fit.
    group_size : int or None
        The group size that the user asks about.
    estimator : str or None
        The name of the user's estimator in the registry; None if the user named none, and any baseline may be recommended.
    baseline : str or None
        The baseline of that estimator, if its estimate is the gradient's but for a constant factor. Of another estimator None:
        the recommendation is then for the leave-one-out mean.
    level, tolerance : float
        Of the confidence intervals; the loss that is small enough not to matter.
    rewards : RewardsAdvice
    scores : ScoresAdvice or None
        None where the best group size cannot be told.
    missing : str
        Why it cannot be told; empty if it can.
    notes : tuple of str
        What the reader of the table found, a sentence each.
    """

    limits: Limits
    group_size: int | None
    estimator: str | None
    baseline: str | None
    level: float
    tolerance: float
    rewards: RewardsAdvice
    scores: ScoresAdvice | None
    missing: str = ""
    notes: tuple[str, ...] = ()

    @property
    def asked(self) -> int | None:
        """The group size about which rewards are asked: the user's, or the recommended one, or None."""
        if self.group_size is not None:
            return self.group_size
        return None if self.scores is None else self.scores.choice.group_size

    @property
    def enough(self) -> bool | None:
        """Whether the recommended size is sure to lose no more than the tolerance; None without scores."""
        return None if self.scores is None else self.scores.choice.risk <= self.tolerance

    @property
    def heavy_tailed(self) -> bool:
        """Whether the prompts differ so much in gradient length that Student's limits of the error would be too narrow."""
        return self.scores is not None and self.scores.leave_one_out.student_coverage < self.level - SHORT

    def __str__(self) -> str:
        from grpo_theory.plan.text import tell  # imported here to avoid a circular import: text.py imports this module

        return tell(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists, strings, finite numbers and None (docs/planner.md lists the keys)."""
        from grpo_theory.plan.record import record

        return record(self)

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return one page with the text and the curves, which needs nothing else."""
        from grpo_theory.plan.page import page

        return page(self)


def advise(
    rollouts: RolloutLog | Groups | RewardCounts,
    budget: float,
    *,
    cost_prompt: float = 0.0,
    cost_response: float = 1.0,
    group_size: int | None = None,
    max_group_size: int = Limits.max_group_size,
    max_responses: int | None = None,
    min_prompts: int = 1,
    multiple_of: int = 1,
    estimator: str | Estimator | None = None,
    level: float = 0.95,
    tolerance: float = TOLERANCE,
    findings: Findings | None = None,
) -> Advice:
    """Advise on group size, batch, baseline and learning rate from the rollouts of a policy.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them. With scores, or sketches of them, the best group size is advised on; without, what
        rewards alone tell.
    budget, cost_prompt, cost_response, max_group_size, max_responses, min_prompts, multiple_of
        As in `Limits`.
    group_size : int, optional
        The group size in use, to be compared.
    estimator : str or Estimator, optional
        The advantages in use: a name of `gt.estimators()`, as "trl_grpo". The recommendation then keeps its baseline. Without
        it, no baseline, the leave-one-out mean, the mean reward of all prompts and a mixture of these means are compared.
    level : float, default 0.95
        Of every interval by itself.
    tolerance : float, default 0.05
        A loss that does not matter, as a share of the error.
    findings : Findings, optional
        What the reader of the table found, to be repeated; a `RolloutLog` has its own.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        If budget and limits allow no batch; if a log was read with several groups of one prompt, which are not independent; and
        if the rollouts can say nothing: fewer than three prompts, one response a prompt, all rewards equal.
    """
    level, tolerance = check_level(level), as_fraction("tolerance", tolerance)
    limits = Limits(
        budget=budget,
        cost_prompt=cost_prompt,
        cost_response=cost_response,
        max_group_size=max_group_size,
        max_responses=max_responses,
        min_prompts=min_prompts,
        multiple_of=multiple_of,
    )
    sizes, _ = limits.batches()
    named = None if estimator is None else find(estimator)
    if group_size is not None and as_count("group_size", group_size, 2) not in sizes:
        raise ValueError(f"group_size must be one that budget and limits allow, of {sizes[0]} to {sizes[-1]}, got {group_size}")
    groups, counts = _parts(rollouts)
    findings = rollouts.findings if isinstance(rollouts, RolloutLog) else findings
    check_independent(findings)
    check_informative(counts)
    kept, missing = usable(groups)
    own = None if named is None else baseline_of(named, int(group_size or sizes[0]))
    only = own if own is not None or named is None else LEAVE_ONE_OUT
    scores = None if kept is None else _from_scores(kept, counts.prompts, limits, group_size, (only, level, tolerance))
    asked = group_size or (None if scores is None else scores.choice.group_size)
    name = UNNAMED if named is None else named.name
    rewards = advise_from_rewards(counts, name, limits, asked, None if scores is None else scores.choice.group_size, level)
    notes = () if findings is None else tuple(str(findings).splitlines())
    told = None if named is None else named.name
    return Advice(limits, group_size, told, own, level, tolerance, rewards, scores, missing, notes)


def _parts(rollouts: RolloutLog | Groups | RewardCounts) -> tuple[Groups | None, RewardCounts]:
    """Return rollouts if there are any, and the counts of their rewards."""
    if isinstance(rollouts, RolloutLog):
        return rollouts.rollouts, rollouts.rollouts.counts
    if isinstance(rollouts, RewardCounts):
        return None, rollouts
    if isinstance(rollouts, RaggedRollouts):
        return rollouts, rollouts.counts
    if isinstance(rollouts, Rollouts):
        if not rollouts.single:
            raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {rollouts.rewards.shape}")
        prompts = np.repeat(np.arange(rollouts.batch_size), rollouts.group_size)
        return rollouts, RewardCounts.from_rewards(prompts, rollouts.rewards.ravel())
    raise TypeError(f"rollouts must be what gt.read_rollouts returns, rollouts or reward counts, got {shown(rollouts)}")


def check_independent(findings: Findings | None) -> None:
    """Raise ValueError if prompts have several groups each: the limits are right for groups of different prompts."""
    if findings is not None and findings.groups > findings.prompts:
        raise ValueError(
            f"rollouts must have one group a prompt, and these {findings.groups} groups are of {findings.prompts} prompts: read "
            "the table with steps 'newest', which takes the newest group of each"
        )


def check_informative(counts: RewardCounts) -> None:
    """Raise ValueError unless there are three prompts, one of them with two responses, and two different rewards."""
    if counts.prompts < FEWEST_PROMPTS:
        raise ValueError(f"rollouts must have at least {FEWEST_PROMPTS} prompts, got {counts.prompts}")
    if counts.sizes.max() < 2:
        raise ValueError("rollouts must have prompts with several responses, and each prompt has one: a group cannot be formed")
    if counts.values.size < 2:
        raise ValueError(
            f"rollouts must have different rewards, and all are {counts.values[0]:g}: they say nothing about a gradient"
        )


def usable(groups: Groups | None) -> tuple[Groups | None, str]:
    """Return the prompts that say something about the best group size, or None and why there are too few."""
    if groups is None or groups.scores is None:
        return None, NO_SCORES
    enough = int((groups.sizes >= FEWEST).sum())
    if enough < FEWEST_PROMPTS:
        return None, f"that takes {FEWEST_PROMPTS} prompts with {FEWEST} responses or more, and the table has {enough}"
    kept = groups.at_least(FEWEST) if isinstance(groups, RaggedRollouts) else groups
    if not kept.by_prompt(lambda group: np.ptp(group.rewards, axis=-1)).any():
        return None, f"in no group of {FEWEST} responses or more do the rewards differ"
    return kept, ""


def _from_scores(
    kept: Groups, prompts: int, limits: Limits, group_size: int | None, asked: tuple[str | None, float, float]
) -> ScoresAdvice:
    """Return what rewards and scores tell, with one baseline or any, at a level and with a tolerance."""
    baseline, level, tolerance = asked
    leave_one_out = choose_group_size(kept, limits, level)
    recommended = choose_baseline(kept, limits, leave_one_out, baseline)
    choice, pair = recommended.choice, recommended.pair
    width = kept.known_scores.shape[-1]
    terms = pair_terms(pilot_terms(kept), baseline_terms(kept), pair.name, pair.share)
    weights = mse_weights(choice.batch_size, choice.group_size)
    return ScoresAdvice(
        recommended=recommended,
        leave_one_out=leave_one_out,
        real_optimum=real_optimum(choice, limits),
        signal=signal_of(terms, weights, level, width),
        baselines=compare_baselines(kept, group_size or choice.group_size, level),
        prompts_needed=choice.prompts_needed(tolerance),
        width=width,
        prompts=kept.batch_size,
        dropped=prompts - kept.batch_size,
    )
