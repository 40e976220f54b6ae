"""Advice from a user's rollouts: everything that the plan says, as data."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.interval import Interval, check_level
from grpo_theory.intervals.ragged import RaggedRollouts, RewardCounts
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.logs import Findings, RolloutLog
from grpo_theory.plan.batches import FEWEST_PROMPTS, Limits, cost_optimum
from grpo_theory.plan.efficiency import EfficiencyChoice, EstimatorAdvice, StepLaw, advise_by_efficiency, baseline_of
from grpo_theory.plan.group_size import (
    LEAVE_ONE_OUT,
    BaselineChoice,
    GroupSizeChoice,
    SizeChoice,
    baseline_terms,
    choose_baseline,
    choose_group_size,
)
from grpo_theory.plan.rewards_advice import RewardsAdvice, advise_from_rewards
from grpo_theory.plan.success_rates import most_success
from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import Argument, ArgumentError, as_count, as_fraction, shown

TOLERANCE = 0.05
UNNAMED = "rloo"
"""What the rewards' weights are those of where no estimator is named."""
SHORT = 0.05
"""A warning is given where Student's limits would hold less often than the level by so much: 90% for 95%."""
FEWEST = 4
"""Responses that a prompt must have to say something about the error of a gradient."""


@dataclass(frozen=True, eq=False)
class ScoresAdvice:
    """What rewards and scores together tell.

    Attributes
    ----------
    recommended : BaselineChoice
        The recommended pair of a baseline and a batch, and what has less error.
    leave_one_out : GroupSizeChoice
        The batches with the leave-one-out mean.
    real_optimum : float
        The best group size with the recommended baseline were sizes not whole and only the cost a limit.
    signal : Interval
        The squared norm of the gradient over its mean squared error, with the recommended pair. The limits are those for
        sketches, which the scores are taken for.
    prompts_needed : int or None
        How many prompts a pilot needs for the recommended size to be sure of losing less than the tolerance.
    prompts, dropped : int
        The prompts that this rests on, and those left out because they have fewer than four responses.
    by_efficiency : EstimatorAdvice
        The batches of the user's estimator, if the squared error has another order, and what other estimators would gain.
    """

    recommended: BaselineChoice
    leave_one_out: GroupSizeChoice
    real_optimum: float
    signal: Interval
    prompts_needed: int | None
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


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
    """The advice of the planner as data; `gt.page.to_text(advice)` is what the command prints.

    Attributes
    ----------
    limits : Limits
        What a batch may cost and must fit.
    group_size : int or None
        The group size that the user asks about.
    estimator : str or None
        The name of the user's estimator in the registry; None if the user named none, and any baseline may be recommended.
    baseline : str or None
        The baseline of that estimator, if its estimate is the gradient's times a constant. None for another estimator, which is
        planned by its efficiency.
    level, tolerance : float
        Of the confidence intervals; the loss that is small enough not to matter.
    rewards : RewardsAdvice
    scores : ScoresAdvice or None
        None where the best group size cannot be told.
    missing : Missing or None
        Why it cannot be told; None if it can.
    notes : tuple of str
        What the reader of the table remarks on, a sentence each.
    reading : tuple of str
        What the reader took for what, and how much of it there is; empty without a reader.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)  # from rewards alone
    >>> advice.scores, advice.missing.scores, advice.limits.budget
    (None, True, 1024.0)
    """

    limits: Limits
    group_size: int | None
    estimator: str | None
    baseline: str | None
    level: float
    tolerance: float
    rewards: RewardsAdvice
    scores: ScoresAdvice | None
    missing: Missing | None = None
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()

    def __repr__(self) -> str:
        told = self.missing if self.scores is None else self.scores.recommended.pair
        return f"<Advice {told}; gt.page.to_text shows all of it>"

    @property
    def enough(self) -> bool | None:
        """Whether the recommended size is sure to lose no more than the tolerance; None without scores."""
        return None if self.scores is None else self.scores.choice.risk <= self.tolerance

    @property
    def heavy_tailed(self) -> bool:
        """Whether the prompts differ so much in gradient length that Student's limits of the error would be too narrow."""
        return self.scores is not None and self.scores.leave_one_out.student_coverage < self.level - SHORT


def advise(
    rollouts: RolloutLog | Groups | RewardCounts,
    limits: Limits | float,
    *,
    group_size: int | None = None,
    estimator: str | Estimator | None = None,
    level: float = 0.95,
    tolerance: float = TOLERANCE,
    findings: Findings | None = None,
) -> Advice:
    """Advise on group size, batch, baseline and learning rate from the rollouts of a policy.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them. Advice on the best group size needs scores, or sketches of them; without these it is
        what rewards alone tell.
    limits : Limits or float
        What a batch may cost and must fit. A number is the budget, with no other limit: how many responses.
    group_size : int, optional
        The group size in use, to be compared.
    estimator : str or Estimator, optional
        The estimator in use: a name of `gt.estimators()`, as "trl_grpo". The recommendation is then for it. If it divides, its
        batches are compared by efficiency, up to the logged group size (docs/derivations.md, section 35). Without a name it is
        for the leave-one-out mean, which TRL and verl have. No baseline, the mean reward of all prompts and a mixture of these
        means are then compared with it.
    level : float, default 0.95
        Of every interval by itself.
    tolerance : float, default 0.05
        The share of additional error that does not matter.
    findings : Findings, optional
        What the reader of the table remarked on, to be repeated; a `RolloutLog` has its own.

    Returns
    -------
    Advice
        To be shown by `gt.page.to_text`, `gt.page.to_html` or `gt.page.to_json`.

    Raises
    ------
    ValueError
        If budget and limits allow no batch, or none of the group size in use. If a log was read with several groups of one
        prompt, which are not independent. If the rollouts have scores, and the estimator's advantages depend on more than the
        rewards of their own group. If the rollouts can say nothing: fewer than three prompts, one response per prompt, or all
        rewards equal.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> advice = gt.plan.advise(rollouts, 1024, group_size=8)
    >>> advice.scores.choice.group_size
    5
    """
    level, tolerance = check_level(level), as_fraction("tolerance", tolerance)
    limits = limits if isinstance(limits, Limits) else Limits(budget=limits)
    sizes, _ = limits.batches()
    named = None if estimator is None else find(estimator)
    if group_size is not None and as_count("group_size", group_size, 2) not in sizes:
        allowed = f"must be one that budget and limits allow, of {sizes[0]} to {sizes[-1]}, got {group_size}"
        raise ArgumentError(Argument("group_size"), f" {allowed}")
    groups, counts = parts(rollouts)
    findings = rollouts.findings if isinstance(rollouts, RolloutLog) else findings
    check_independent(findings)
    check_informative(counts)
    kept, missing = usable(groups)
    own = None if named is None else baseline_of(named, int(group_size or sizes[0]))
    scores = None
    if kept is not None:
        # Without a name it is for what trainers can be set to; other baselines are remarks.
        leave_one_out = choose_group_size(kept, limits, level)
        recommended = choose_baseline(kept, limits, leave_one_out, own or LEAVE_ONE_OUT)
        pair, width = recommended.pair, kept.known_scores.shape[-1]
        planned = None if own is not None else named
        by_efficiency = advise_by_efficiency(kept, limits, pair, planned, group_size, level)
        choice, likely = by_efficiency.choice or recommended.choice, recommended.choice.estimates.likely
        law = StepLaw.of_unbiased(baseline_terms(kept)[pair.name], np.array([pair.group_size]))
        scores = ScoresAdvice(
            recommended=recommended,
            leave_one_out=leave_one_out,
            real_optimum=cost_optimum(GroupSizeLaw(*likely.tolist()), limits.cost_prompt, limits.cost_response),
            signal=by_efficiency.signal or law.signal(0, pair.batch_size, level, width),
            prompts_needed=choice.prompts_needed(tolerance),
            prompts=kept.batch_size,
            dropped=counts.prompts - kept.batch_size,
            by_efficiency=by_efficiency,
        )
    best = None if scores is None else scores.choice.group_size
    name = UNNAMED if named is None else named.name
    return Advice(
        limits=limits,
        group_size=group_size,
        estimator=None if named is None else named.name,
        baseline=own,
        level=level,
        tolerance=tolerance,
        rewards=advise_from_rewards(counts, name, limits, group_size or best, best, level),
        scores=scores,
        missing=missing,
        notes=() if findings is None else (*findings.warnings, *findings.remarks, *_contradicted(findings, group_size)),
        reading=() if findings is None else findings.reading,
    )


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


def _contradicted(findings: Findings, group_size: int | None) -> tuple[str, ...]:
    """Return that the log's groups are not of the size that the user has, if all of them have another."""
    sizes = list(findings.sizes)
    if group_size is None or group_size in sizes:
        return ()
    held = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return (f"The groups of the log have {held} responses, and none the {group_size:,} of your group size (--group-size).",)


def parts(rollouts: RolloutLog | Groups | RewardCounts) -> tuple[Groups | None, RewardCounts]:
    """Return rollouts if there are any, and the counts of their rewards."""
    found = rollouts.rollouts if isinstance(rollouts, RolloutLog) else rollouts
    if isinstance(found, RewardCounts):
        return None, found
    if isinstance(found, RaggedRollouts):
        return found, found.counts
    if not isinstance(found, Rollouts):
        raise TypeError(f"rollouts must be what gt.read_rollouts returns, rollouts or reward counts, got {shown(rollouts)}")
    if not found.single:
        raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {found.rewards.shape}")
    return found, RewardCounts.from_rewards(np.repeat(np.arange(found.batch_size), found.group_size), found.rewards.ravel())


def check_independent(findings: Findings | None) -> None:
    """Raise ValueError if prompts have several groups each: the limits are right for groups of different prompts."""
    if findings is not None and findings.groups > findings.prompts:
        raise ValueError(
            f"rollouts must have one group per prompt, and these {findings.groups} groups are of {findings.prompts} prompts. "
            "Read the table with steps 'newest', which takes the newest group of each"
        )


def check_informative(counts: RewardCounts) -> None:
    """Raise ValueError unless there are three prompts, one of them with two responses, and two different rewards."""
    if counts.prompts < FEWEST_PROMPTS:
        raise ValueError(f"rollouts must have at least {FEWEST_PROMPTS} prompts, got {counts.prompts}")
    if counts.sizes.max() < 2:
        raise ValueError("rollouts must have prompts with several responses, and each prompt has one: a group cannot be formed")
    if counts.values.size < 2:
        told = "they say nothing about a gradient"
        if counts.values[0] == 0.0:
            most, size = most_success(counts.prompts), int(counts.sizes.min())
            told += (
                f". If 1 is success, at 95% confidence the mean success rate is at most {most:.2g}. So is the share of groups "
            )
            told += f"of up to {size} responses with a signal. Log more prompts, or easier ones"
        raise ValueError(f"rollouts must have different rewards, and all are {counts.values[0]:g}: {told}")
