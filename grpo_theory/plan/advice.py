"""Advice from a user's rollouts: everything that the plan says, as data."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.interval import Interval, check_level
from grpo_theory.intervals.ragged import RaggedRollouts, RewardCounts
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.logs import Findings, RolloutLog
from grpo_theory.plan.batches import FEWEST_PROMPTS, Limits, cost_optimum
from grpo_theory.plan.efficiency import (
    MOST_VALUES,
    EfficiencyChoice,
    EstimatorLaws,
    StepLaw,
    baseline_of,
    plan_by_efficiency,
    switches,
)
from grpo_theory.plan.group_size import (
    LEAVE_ONE_OUT,
    GroupSizeChoice,
    SizeChoice,
    Switch,
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
NO_SCORES = "the table has no gradients"


@dataclass(frozen=True, eq=False)
class ScoresAdvice:
    """What rewards and scores together tell.

    Attributes
    ----------
    baseline : str
        The recommended one.
    by_error : GroupSizeChoice
        The batches with it.
    rival : Switch or None
        The baseline that is shown to have less error, if there is one.
    real_optimum : float
        The best group size with the recommended baseline were sizes not whole and only the cost a limit.
    signal : Interval
        The squared norm of the gradient over its mean squared error, with the recommended batch. The limits are those for
        sketches, which the scores are taken for. Of an estimator that divides it is efficiency/(1 - efficiency).
    student_coverage : float
        How often Student's limits of the constants with the leave-one-out mean would hold.
    laws : EstimatorLaws
        Of the prompts that have as many responses as half of all prompts have: by these the efficiencies are known.
    estimator : Estimator or None
        The user's; None where none is named, or where the squared error has the same order as its efficiency.
    own : EfficiencyChoice or None
        The batches of that estimator, by their efficiency.
    refusal : str
        Why there are none for it; empty if there are, or none are needed.
    """

    baseline: str
    by_error: GroupSizeChoice
    rival: Switch | None
    real_optimum: float
    signal: Interval
    student_coverage: float
    laws: EstimatorLaws
    estimator: Estimator | None
    own: EfficiencyChoice | None
    refusal: str

    @property
    def choice(self) -> SizeChoice:
        """The recommended group size, its rivals, and what each size loses: by efficiency, or with the recommended baseline."""
        return self.by_error if self.own is None else self.own

    @property
    def prompts(self) -> int:
        """The prompts that this rests on: those with four responses or more."""
        return self.by_error.estimates.prompts

    @cached_property
    def others(self) -> tuple[Switch, ...]:
        """Other estimators and what they gain; empty where the user's cannot be planned, or the table has too many rewards."""
        if self.refusal or self.laws.distinct > MOST_VALUES:
            return ()
        level, own = self.choice.loss.level, self.own
        if own is None:
            root, likely = self.laws.of_recommended(self.baseline, self.by_error)
        else:
            root, likely = own.estimates.at(own.best), own.likely_root
        return switches(self.laws.others(self.estimator, level), root, likely, level)


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
    missing : str
        Why it cannot be told; empty if it can.
    notes : tuple of str
        What the reader of the table remarks on, a sentence each.
    reading : tuple of str
        What the reader took for what, and how much of it there is; empty without a reader.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)  # from rewards alone
    >>> advice.scores, advice.missing, advice.limits.budget
    (None, 'the table has no gradients', 1024.0)
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
    reading: tuple[str, ...] = ()

    def __repr__(self) -> str:
        told = self.missing if self.scores is None else f"groups of {self.scores.choice.group_size}"
        return f"<Advice {told}; gt.page.to_text shows all of it>"

    @property
    def enough(self) -> bool | None:
        """Whether the recommended size is sure to lose no more than the tolerance; None without scores."""
        return None if self.scores is None else self.scores.choice.risk <= self.tolerance

    @property
    def heavy_tailed(self) -> bool:
        """Whether the prompts differ so much in gradient length that Student's limits of the error would be too narrow."""
        return self.scores is not None and self.scores.student_coverage < self.level - SHORT


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
        baseline, leave_one_out = own or LEAVE_ONE_OUT, choose_group_size(kept, limits, level)
        by_error, rival = choose_baseline(kept, limits, leave_one_out, baseline)
        laws, divides, planned, refusal = EstimatorLaws(kept, limits, group_size), None if own else named, None, ""
        if divides is not None:
            planned, refusal = plan_by_efficiency(laws, divides, level)
        choice = planned or by_error
        law, at = (StepLaw.of_unbiased(baseline_terms(kept)[baseline], choice.group_sizes[[choice.best]]), 0)
        if planned is not None:
            law, at = planned.law, planned.best
        scores = ScoresAdvice(
            baseline=baseline,
            by_error=by_error,
            rival=rival,
            real_optimum=cost_optimum(
                GroupSizeLaw(*by_error.estimates.likely.tolist()), limits.cost_prompt, limits.cost_response
            ),
            signal=law.signal(at, choice.batch_size, level, kept.known_scores.shape[-1]),
            student_coverage=leave_one_out.student_coverage,
            laws=laws,
            estimator=divides,
            own=planned,
            refusal=refusal,
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


def usable(groups: Groups | None) -> tuple[Groups | None, str]:
    """Return the prompts that say something about the best group size and "", or None and what is missing."""
    if groups is None or groups.scores is None:
        return None, NO_SCORES
    enough = int((groups.sizes >= FEWEST).sum())
    if enough < FEWEST_PROMPTS:
        return None, f"{FEWEST_PROMPTS} prompts with {FEWEST} responses or more are needed, and the table has {enough}"
    kept = groups.at_least(FEWEST) if isinstance(groups, RaggedRollouts) else groups
    if not kept.by_prompt(lambda group: np.ptp(group.rewards, axis=-1)).any():
        return None, f"in no group of {FEWEST} responses or more do the rewards differ"
    return kept, ""


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
