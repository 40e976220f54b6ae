"""What rewards alone tell: what responses are worth, shares of groups of one reward, success rates, weights, evaluations."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from grpo_theory.intervals import Interval
from grpo_theory.intervals.comparisons import MOST_SEEDS, pairs_needed
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.intervals.rollout_intervals import effective_interval
from grpo_theory.logs.findings import filtered
from grpo_theory.plan.batches import Limits
from grpo_theory.plan.expected_step import LearningRateFactor, PromptWeights, learning_rate_factor, weigh_prompts
from grpo_theory.plan.success_rates import (
    SuccessRates,
    UniformShares,
    estimate_uniform_shares,
    fit_success_rates,
    responses_to_tell,
)
from grpo_theory.validation import as_fraction, as_number, as_positive, typed

SHOWN = (2, 4, 8, 16, 32, 64, 128)
"""Group sizes that are always shown, where they are allowed."""
FEWEST = 4
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
    range : (float, float)
        The least and the greatest reward.
    distinct : int
        How many different rewards there are.
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
    range: tuple[float, float]
    distinct: int
    uniform: UniformShares
    evaluations: tuple[Evaluation, ...]
    rates: SuccessRates | None
    weights: PromptWeights | None
    learning_rate: LearningRateFactor | None
    refusal: str


def advise_from_rewards(
    counts: RewardCounts, estimator: str, limits: Limits, asked: int | None, recommended: int | None, level: float
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
        law = fit_success_rates(counts)
        if largest < FEWEST:
            refusal = (
                f"groups of {largest} responses do not tell how success rates are distributed over prompts. Log groups of "
                f"{FEWEST} or more; groups of {responses_to_tell(max(sizes))} tell how many groups of up to {max(sizes)} are of "
                "equal rewards"
            )
    try:
        if asked is not None and not chosen:
            weights = weigh_prompts(counts, estimator, asked, level, law=law) if not refusal else None
            if recommended is not None and recommended != asked:
                factor = learning_rate_factor(counts, (estimator, asked), (estimator, recommended), level, law=law)
    except ValueError as error:  # an estimator whose update is not a function of the success rate
        refusal = refusal or str(error)
    least, greatest, evaluations = float(counts.values[0]), float(counts.values[-1]), []
    if chosen:  # uniform groups may be of any share above that least one: prompts of which all are uniform are never seen
        unknown, needed = np.full(sizes.size, np.nan), np.vectorize(responses_to_tell)(sizes, counts.values.size)
        known = Interval(unknown, unknown, float(counts.values.size) ** (1.0 - sizes), np.ones(sizes.size), level)
        uniform = UniformShares(sizes, known, np.zeros(sizes.size), np.full((sizes.size, 2), np.nan), needed)
    else:
        uniform, variance = estimate_uniform_shares(counts, sizes, level, law=law), split_variance(counts)
        evaluations = [
            evaluation_size(variance, DIFFERENCE * (greatest - least), k, rho, level) for rho in CORRELATIONS for k in EVALUATED
        ]
    return RewardsAdvice(
        sample=effective_sample_size(counts, level),
        group_sizes=(int(counts.sizes.min()), largest),
        range=(least, greatest),
        distinct=int(counts.values.size),
        uniform=uniform,
        evaluations=tuple(evaluations),
        rates=None if refusal and largest < FEWEST else law,
        weights=weights,
        learning_rate=factor,
        refusal=refusal,
    )
