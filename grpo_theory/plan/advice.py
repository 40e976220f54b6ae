"""Advice from a user's rollouts: everything that the plan says of a step, from rewards alone and from scores, as data.

For a whole run it is a rule, because no advice from a log beats it by more than its error (docs/runs.md).
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.intervals.comparisons import MOST_SEEDS, pairs_needed
from grpo_theory.intervals.interval import Interval, check_level
from grpo_theory.intervals.rollout_intervals import effective_interval
from grpo_theory.intervals.rollouts import Groups, RaggedRollouts, RewardCounts, Rollouts
from grpo_theory.logs import Findings, RolloutLog
from grpo_theory.logs.findings import filtered
from grpo_theory.plan import efficiency, success_rates
from grpo_theory.plan import group_size as sizing
from grpo_theory.plan.expected_step import LearningRateFactor, PromptWeights, learning_rate_factor, weigh_prompts
from grpo_theory.validation import (
    Argument,
    ArgumentError,
    as_count,
    as_fraction,
    as_not_negative,
    as_number,
    as_positive,
    shown,
    typed,
)

SHOWN = (2, 4, 8, 16, 32, 64, 128)
"""Group sizes that are always shown, where they are allowed."""
LAW_FROM = 4
"""Responses to a prompt from which the law of success rates is told: of fewer it shows two or three moments."""
EXPECTED = 5.0
"""A log without groups of equal rewards has been filtered for sure where so many were to be expected at least."""
DIFFERENCE = 0.02
"""The difference that an evaluation is to find, as a share of the range of the rewards."""
CORRELATIONS, EVALUATED = (0.0, 0.9), (1, 8)
"""Of two policies' expected rewards over prompts: nothing in common, and one a few steps on; and responses a prompt."""
POWER = 0.8
CHOSEN = (
    "no group has equal rewards, and by the groups that were logged some should. Such groups were left out before logging, and "
    "those that were kept do not tell how often prompts succeed"
)
"""Why success rates are unknown where groups were chosen by their rewards."""


@dataclass(frozen=True)
class RewardVariance:
    """The variance of rewards, split into that between prompts and that within them, both estimated without bias.

    Attributes
    ----------
    between : float
        The variance of the prompts' expected rewards; may come out below 0 where it is small.
    within : float
        The mean variance of a prompt's rewards; with binary rewards the mean of p (1 - p).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> found = gt.plan.split_variance(counts)
    >>> round(found.between, 3), round(found.within, 3), round(found.correlation, 2)
    (0.097, 0.194, 0.33)
    """

    between: float
    within: float

    @property
    def correlation(self) -> float:
        """The share of the variance that lies between prompts, which is the correlation of two rewards of a prompt."""
        total = self.between + self.within
        return self.between / total if total > 0.0 else 0.0


@typed
def split_variance(counts: RewardCounts) -> RewardVariance:
    """Estimate the variance of rewards between and within prompts without bias, for any rewards and group sizes.

    The variance within prompts is the mean of the groups' variances (divisor n - 1) over prompts of at least two responses. The
    variance between them is that of the groups' means less what sampling adds to it, the mean of the within variance over n.

    Raises
    ------
    ValueError
        On fewer than two prompts, and where no prompt has two responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.split_variance(counts)
    >>> round(found.between / (found.between + found.within), 2)  # the share that lies between prompts
    0.38
    """
    pairs, rows = counts.sizes >= 2, np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    if counts.prompts < 2 or not pairs.any():
        raise ValueError("counts must be of at least 2 prompts, one with two responses, for a variance between them and within")
    squares = counts.counts.data * (counts.values[counts.counts.indices] - counts.means[rows]) ** 2
    own = np.bincount(rows, weights=squares, minlength=counts.prompts) / np.maximum(counts.sizes - 1, 1)
    within = float(own[pairs].mean())
    noise = np.where(pairs, own, within) / counts.sizes
    return RewardVariance(float(counts.means.var(ddof=1) - noise.mean()), within)


@dataclass(frozen=True, eq=False)
class SampleSize:
    """The effective sample size of N logged responses.

    Attributes
    ----------
    prompts, responses : int
    mixed_prompts, mixed_responses : int
        Of groups whose rewards are not all equal, as they were logged: the others give most estimators no gradient.
    mean_reward : Interval
        The mean over prompts of the expected reward; every prompt counts alike, however many responses it has.
    variance : RewardVariance or None
        None if no prompt has two responses.
    design_effect : float
        The variance of the mean reward over that of as many independent responses. It is 1 + (G - 1) times the correlation if
        all groups have size G. NaN without a variance.
    effective_responses : float
        The number of independent responses that would tell the mean reward as well. NaN without a variance.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.effective_sample_size(counts)
    >>> found.responses, round(found.effective_responses)
    (4128, 325)
    """

    prompts: int
    responses: int
    mixed_prompts: int
    mixed_responses: int
    mean_reward: Interval
    variance: RewardVariance | None
    design_effect: float
    effective_responses: float


@typed
def effective_sample_size(counts: RewardCounts, level: float = 0.95) -> SampleSize:
    """Estimate the mean reward and the effective sample size of logged responses, with any rewards and group sizes.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts.
    level : float, default 0.95

    Returns
    -------
    SampleSize
        The interval of the mean reward is `gt.intervals.value_effective`. Its bounds are 0 and 1 if rewards are, and otherwise
        the least and the greatest reward that came.

    Raises
    ------
    ValueError
        On fewer than two prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> found = gt.plan.effective_sample_size(counts)
    >>> found.mixed_prompts, round(found.design_effect, 2)
    (2, 2.0)
    """
    level = check_level(level)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
    success = np.isin(counts.values, (0.0, 1.0)).all()  # or failure, though all may have been one of them
    total, (least, most) = int(counts.sizes.sum()), (0.0, 1.0) if success else (float(counts.values[0]), float(counts.values[-1]))
    interval = Interval(np.array(least), np.array(0.0), np.array(least), np.array(most), level)
    if most > least:
        interval = effective_interval(counts.means, counts.sizes, (least, most), level)
    variance, effect = None, np.nan
    if (counts.sizes >= 2).any():
        variance = split_variance(counts)
        # The variance of the mean of the prompts' means over that of as many independent responses (section 34).
        correlation = float(np.clip(variance.correlation, 0.0, 1.0))
        noise = float((1.0 / counts.sizes).mean())
        effect = float((correlation + (1.0 - correlation) * noise) / counts.prompts * counts.sizes.sum())
    sums = int((~counts.uniform).sum()), int(counts.sizes[~counts.uniform].sum())
    return SampleSize(counts.prompts, total, *sums, interval, variance, effect, total / effect)


def unpaired_seeds_needed(spread: float, difference: float, power: float = POWER, level: float = 0.95) -> int:
    """Return the number of runs of each of two settings at which a t test of two samples finds a difference.

    Parameters
    ----------
    spread : float
        The standard deviation of runs between seeds, the same for both settings.
    difference : float
        Of the settings' means, not 0.
    power : float, default 0.8
        The probability to find it.
    level : float, default 0.95
        One less the size of the two-sided test.

    Returns
    -------
    int
        The least R >= 2, exact if runs are normal (statsmodels' `TTestIndPower`). 10,000,001 if it would be more.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.plan.unpaired_seeds_needed(spread=0.02, difference=0.02)
    17
    """
    from statsmodels.stats.power import TTestIndPower  # slow to import, and seldom wanted

    effect = as_positive("difference", abs(as_number("difference", difference))) / as_positive("spread", spread)
    asked, test = {"alpha": 1.0 - check_level(level), "power": as_fraction("power", power)}, TTestIndPower()
    if effect**2 * MOST_SEEDS < 1.0:
        return MOST_SEEDS + 1
    if test.power(effect, 2, asked["alpha"]) >= asked["power"]:
        return 2
    return min(int(np.ceil(test.solve_power(effect, nobs1=None, **asked) - 1e-9)), MOST_SEEDS + 1)


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


def evaluation_size(
    variance: RewardVariance, difference: float, responses: int, correlation: float, level: float = 0.95
) -> Evaluation:
    """Return how many prompts a paired t test over prompts takes to find a difference of two policies with a chance of 0.8.

    Their expected rewards have a correlation over prompts, which one table does not tell. It is 0 if the policies have nothing in
    common, and near 1 if one is the other a few steps on.

    The number is the least, exact if the prompts' differences were normal; 10,000,001 if it would be more.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.plan.evaluation_size(gt.plan.RewardVariance(0.1, 0.15), 0.05, responses=4, correlation=0.9).prompts
    301
    """
    between, within = max(variance.between, 0.0), variance.within / responses
    squared = 2.0 * (1.0 - correlation) * between + 2.0 * within  # of the difference of two policies that are both like this one
    prompts = pairs_needed(difference / sqrt(max(squared, 1e-300)), POWER, level)
    return Evaluation(correlation, responses, difference, prompts, sqrt((between + within) / prompts))


@dataclass(frozen=True, eq=False)
class RewardsAdvice:
    """What rewards alone tell.

    Attributes
    ----------
    sample : SampleSize
        Of the table.
    group_sizes : (int, int)
        Sizes of the smallest and the largest group.
    uniform : UniformShares
        The share of groups whose rewards are all equal, at the group sizes that are shown.
    evaluations : tuple of Evaluation
        How many prompts tell two policies apart; empty where groups were chosen by their rewards.
    rates : SuccessRates or None
        The law of the prompts' success rates; None unless there are exactly two rewards, and groups of four or more.
    weights : PromptWeights or None
        How the estimator's expected step is shared among prompts, at the group size asked about.
    learning_rate : LearningRateFactor or None
        By what to multiply the learning rate when going from the group size in use to the recommended one.
    refusal : str
        Why success rates or weights are not told; empty if they are, or if no group size was asked about.
    """

    sample: SampleSize
    group_sizes: tuple[int, int]
    uniform: success_rates.UniformShares
    evaluations: tuple[Evaluation, ...]
    rates: success_rates.SuccessRates | None
    weights: PromptWeights | None
    learning_rate: LearningRateFactor | None
    refusal: str


def advise_from_rewards(
    counts: RewardCounts, estimator: str, limits: sizing.Limits, asked: int | None, recommended: int | None, level: float
) -> RewardsAdvice:
    """Say what rewards alone tell, at the group size asked about and of a change to the recommended one, where there are such."""
    allowed, _ = limits.batches()
    shown = {*SHOWN, *(size for size in (asked, recommended) if size is not None)}
    sizes = np.array(sorted(shown & set(allowed.tolist())) or allowed[:1])
    # Whatever the policy, n responses with L rewards are alike with a chance of at least L^(1-n), by Jensen. Where 5 were to be
    # expected, none come with a chance below exp(-5) = 0.7%. Else the log's remark stands beside the numbers.
    expected = float((float(counts.values.size) ** (1.0 - counts.sizes)).sum())
    chosen, largest, law = filtered(counts) and expected >= EXPECTED, int(counts.sizes.max()), None
    weights, factor, refusal = None, None, CHOSEN if chosen else ""
    if counts.binary and not chosen:
        law = success_rates.fit_success_rates(counts)
        if largest < LAW_FROM:
            refusal = f"groups of {largest} responses do not tell how success rates are distributed over prompts. Log groups of "
            tell = success_rates.responses_to_tell(max(sizes))
            refusal += f"{LAW_FROM} or more; groups of {tell} tell how many groups of up to {max(sizes)} have equal rewards"
    try:
        if asked is not None and not chosen:
            weights = weigh_prompts(counts, estimator, asked, level, law=law) if not refusal else None
            if recommended is not None and recommended != asked:
                factor = learning_rate_factor(counts, (estimator, asked), (estimator, recommended), level, law=law)
    except ValueError as error:  # an estimator whose update is not a function of the success rate
        refusal = refusal or str(error)
    evaluations = []
    if chosen:  # uniform groups may be of any share above that least one: prompts of which all are uniform are never seen
        unknown, needed = np.full(sizes.size, np.nan), np.vectorize(success_rates.responses_to_tell)(sizes, counts.values.size)
        known = Interval(unknown, unknown, float(counts.values.size) ** (1.0 - sizes), np.ones(sizes.size), level)
        uniform = success_rates.UniformShares(sizes, known, np.zeros(sizes.size), np.full((sizes.size, 2), np.nan), needed)
    else:
        uniform, variance = success_rates.estimate_uniform_shares(counts, sizes, level, law=law), split_variance(counts)
        apart = DIFFERENCE * float(np.ptp(counts.values))
        evaluations = [evaluation_size(variance, apart, k, rho, level) for rho in CORRELATIONS for k in EVALUATED]
    sample, rates = effective_sample_size(counts, level), None if refusal and largest < LAW_FROM else law
    logged = int(counts.sizes.min()), largest
    return RewardsAdvice(sample, logged, uniform, tuple(evaluations), rates, weights, factor, refusal)


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
    by_error: sizing.GroupSizeChoice
    rival: sizing.Switch | None
    signal: Interval
    student_coverage: float
    laws: efficiency.EstimatorLaws
    estimator: Estimator | None
    own: efficiency.EfficiencyChoice | None
    refusal: str

    @property
    def choice(self) -> sizing.SizeChoice:
        """The recommended group size, its rivals, and what each size loses: by efficiency, or with the recommended baseline."""
        return self.by_error if self.own is None else self.own

    @property
    def prompts(self) -> int:
        """The prompts that this rests on: those with four responses or more."""
        return self.by_error.estimates.prompts

    @cached_property
    def others(self) -> tuple[sizing.Switch, ...]:
        """Other estimators and what they gain; empty where the user's cannot be planned, or the table has too many rewards."""
        if self.refusal or self.laws.distinct > efficiency.MOST_VALUES:
            return ()
        level, own = self.choice.loss.level, self.own
        if own is None:
            root, likely = self.laws.of_recommended(self.baseline, self.by_error)
        else:
            root, likely = own.estimates.at(own.best), own.likely_root
        return efficiency.switches(self.laws.others(self.estimator, level), root, likely, level)


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

    limits: sizing.Limits
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
    limits: sizing.Limits | float,
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
    limits = limits if isinstance(limits, sizing.Limits) else sizing.Limits(budget=limits)
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
    name = None if named is None else named.name
    own = None if named is None else efficiency.baseline_of(named, int(group_size or sizes[0]))
    scores = None
    if kept is not None:
        # Without a name it is for what trainers can be set to; other baselines are remarks.
        baseline, leave_one_out = own or sizing.LEAVE_ONE_OUT, sizing.choose_group_size(kept, limits, level)
        by_error, rival = sizing.choose_baseline(kept, limits, leave_one_out, baseline)
        laws, divides, planned, refusal = efficiency.EstimatorLaws(kept, limits, group_size), None if own else named, None, ""
        if divides is not None:
            efficiency.check_reads_own_rewards(divides)
            most = efficiency.MOST_VALUES
            if laws.distinct > most:
                refusal = f"the table has {laws.distinct:,} different rewards, and the law of {name} is known for at most {most}"
            elif (planned := laws.choice(divides, level)) is None:
                refusal = f"budget and limits allow no group of at most {laws.largest}, the number of responses of the prompts"
        choice = planned or by_error
        law, at = (efficiency.StepLaw.of_unbiased(sizing.baseline_terms(kept)[baseline], choice.group_sizes[[choice.best]]), 0)
        if planned is not None:
            law, at = planned.law, planned.best
        strength, student = law.signal(at, choice.batch_size, level, kept.known_scores.shape[-1]), leave_one_out.student_coverage
        scores = ScoresAdvice(baseline, by_error, rival, strength, student, laws, divides, planned, refusal)
    best = None if scores is None else scores.choice.group_size
    notes = list[str]()
    if findings is not None:
        notes += [*findings.warnings, *findings.remarks]
        logged = list(findings.sizes)
        if group_size is not None and group_size not in logged:
            held = f"{logged[0]:,}" if len(logged) == 1 else f"{logged[0]:,} to {logged[-1]:,}"
            own_size = f"none the {group_size:,} of your group size (--group-size)"
            notes.append(f"The groups of the log have {held} responses, and {own_size}.")
    rewards = advise_from_rewards(counts, name or UNNAMED, limits, group_size or best, best, level)
    told = (rewards, scores, missing, tuple(notes), () if findings is None else findings.reading)
    return Advice(limits, group_size, name, own, level, tolerance, *told)


def usable(groups: Groups | None) -> tuple[Groups | None, str]:
    """Return the prompts that say something about the best group size and "", or None and what is missing."""
    if groups is None or groups.scores is None:
        return None, NO_SCORES
    enough = int((groups.sizes >= FEWEST).sum())
    if enough < sizing.FEWEST_PROMPTS:
        return None, f"{sizing.FEWEST_PROMPTS} prompts with {FEWEST} responses or more are needed, and the table has {enough}"
    kept = groups.at_least(FEWEST) if isinstance(groups, RaggedRollouts) else groups
    if not kept.by_prompt(lambda group: np.ptp(group.rewards, axis=-1)).any():
        return None, f"in no group of {FEWEST} responses or more do the rewards differ"
    return kept, ""


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
        told = f"rollouts must have one group per prompt, and these {findings.groups} groups are of {findings.prompts} prompts."
        raise ValueError(f"{told} Read the table with steps 'newest', which takes the newest group of each")


def check_informative(counts: RewardCounts) -> None:
    """Raise ValueError unless there are three prompts, one of them with two responses, and two different rewards."""
    if counts.prompts < sizing.FEWEST_PROMPTS:
        raise ValueError(f"rollouts must have at least {sizing.FEWEST_PROMPTS} prompts, got {counts.prompts}")
    if counts.sizes.max() < 2:
        raise ValueError("rollouts must have prompts with several responses, and each prompt has one: a group cannot be formed")
    if counts.values.size < 2:
        told = "they say nothing about a gradient"
        if counts.values[0] == 0.0:
            most, size = success_rates.most_success(counts.prompts), int(counts.sizes.min())
            told += f". If 1 is success, at 95% confidence the mean success rate is at most {most:.2g}. So is the share of "
            told += f"groups of up to {size} responses with a signal. Log more prompts, or easier ones"
        raise ValueError(f"rollouts must have different rewards, and all are {counts.values[0]:g}: {told}")


RULE, KEPT = 8, (4, 32)
"""The group size for a run, and the least and the most in use that are kept."""
LOST = (0.5, 2.5)
"""The points that groups of 8 lose to the best size, on average and at most by estimate, in the worlds of docs/runs.md."""

SLOPES = {False: 0.3, True: 0.45}
"""By how many octaves the best rate of plain ascent falls where the size doubles, undivided and divided (docs/runs.md)."""


@dataclass(frozen=True)
class RunAdvice:
    """The group size for a whole run.

    Attributes
    ----------
    estimator : str
        The estimator that is trained with.
    total : float
        What the run may cost: its responses, where a response costs 1 and a prompt nothing.
    training_prompts : int
        The prompts that are trained on.
    group_size : int
        The recommended size: the one in use if it is kept.
    asked : int or None
        The group size in use.
    keep : bool
        Whether the size in use is kept.
    learning_rate : float or None
        By what to multiply plain ascent's learning rate, from the size in use to the recommended one, at equal responses per
        update.  None where nothing changes.  With Adam the best rate does not move.
    costs : (float, float)
        Of a prompt in an update, and of a response.
    each : float
        The responses of the run over the prompts trained on, in groups of the recommended size.
    """

    estimator: str
    total: float
    training_prompts: int
    group_size: int
    asked: int | None
    keep: bool
    learning_rate: float | None
    costs: tuple[float, float]
    each: float


def advise_run(
    rollouts: RolloutLog | Groups | RewardCounts,
    total: float,
    *,
    training_prompts: int | None = None,
    estimator: str | Estimator | None = None,
    group_size: int | None = None,
    costs: tuple[float, float] = (0.0, 1.0),
    largest: int = KEPT[1],
) -> RunAdvice:
    """Advise on the group size of a whole run of training: groups of 8, or the size in use from 4 to 32.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them, with at least two different rewards.
    total : float
        What the whole run may cost: its responses of all prompts and updates, if costs are not given.
    training_prompts : int, optional
        How many prompts are trained on; those of the log if it is not given.
    estimator : str or Estimator, optional
        The estimator that is trained with: a name of `gt.estimators()`. "rloo" if it is not given.
    group_size : int, optional
        The size in use.
    costs : (float, float), default (0, 1)
        Of a prompt in an update, whatever its group's size, and of a response, in the unit of the total.
    largest : int, default 32
        The largest group size that is allowed.

    Returns
    -------
    RunAdvice

    Raises
    ------
    ValueError
        If all rewards are equal, and if the total is not finite or less than one group.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> log = gt.read_rollouts("examples/rollouts.jsonl")
    >>> advice = gt.plan.advise_run(log, 20_000, training_prompts=1000, estimator="trl_grpo", group_size=64)
    >>> advice.group_size, advice.keep, advice.each
    (8, False, 20.0)
    """
    _, counts = parts(rollouts)
    check_independent(rollouts.findings if isinstance(rollouts, RolloutLog) else None)
    check_informative(counts)
    chosen = find(UNNAMED if estimator is None else estimator)
    paid = as_not_negative("cost_prompt", costs[0]), as_positive("cost_response", costs[1])
    number, asked = check_total(total, paid), None if group_size is None else as_count("group_size", group_size, 2)
    trained_on = counts.prompts if training_prompts is None else as_count("training_prompts", training_prompts)
    least = max(2, chosen.advantage.minimum_group_size)
    most = max(least, min(as_count("largest", largest, 2), int((number - paid[0]) / paid[1])))
    keep = asked is not None and max(KEPT[0], least) <= asked <= min(KEPT[1], most)
    size, factor = asked if keep and asked else min(max(RULE, least), most), None
    if asked is not None and asked != size:
        divides = affine_coefficients(chosen.advantage, RULE) is None  # by what depends on the rewards
        factor = (asked / size) ** SLOPES[divides]
    each = number / (paid[1] + paid[0] / size) / trained_on
    return RunAdvice(chosen.name, number, trained_on, size, asked, keep, factor, paid, each)


def check_total(total: float, costs: tuple[float, float] = (0.0, 1.0)) -> float:
    """Return what a run may cost as a float; ValueError unless it is finite and pays at least one group of two."""
    number, pair = as_positive("total", total), costs[0] + 2.0 * costs[1]
    if number < pair:
        raise ArgumentError(Argument("total"), f" must pay at least one group of 2, which costs {pair:g}, got {total:g}")
    return number
