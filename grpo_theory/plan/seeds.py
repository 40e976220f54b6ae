"""How many evaluation prompts and training seeds it takes to tell two settings apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

from grpo_theory.intervals.comparisons import LARGEST_EFFECT, MOST_SEEDS, pairs_needed, seeds_needed
from grpo_theory.intervals.interval import check_level, student_quantile
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.effective import split_variance
from grpo_theory.validation import as_count, as_fraction, as_not_negative, as_number, as_positive, typed


@dataclass(frozen=True, eq=False)
class EvaluationVariance:
    """The variance of the measured difference between two policies that answer the same prompts.

    Attributes
    ----------
    between : float
        The variance over prompts of the difference of the two expected rewards.
    within : float
        The sum of the two policies' mean variances of a prompt's rewards.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> variance = gt.plan.EvaluationVariance(between=0.02, within=0.3)
    >>> round(variance.of_mean(prompts=200, responses=4), 6)
    0.000475
    """

    between: float
    within: float

    def of_mean(self, prompts: int, responses: int) -> float:
        """Return the variance of the mean difference, with this many responses to each prompt from each policy."""
        return (max(self.between, 0.0) + self.within / responses) / prompts


@typed
def evaluation_variance(counts: RewardCounts, correlation: float) -> EvaluationVariance:
    """Estimate the variance of a comparison from one policy's rewards and an assumed correlation between policies.

    One table does not tell how alike the other policy's successes are. Both are taken to have the variances of this table, and
    their expected rewards the given correlation over prompts. It is 0 if the policies have nothing in common, and near 1 if one
    is the other a few steps on.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts, at least one with two responses.
    correlation : float
        In [0, 1].

    Returns
    -------
    EvaluationVariance

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> variance = gt.plan.evaluation_variance(counts, correlation=0.9)
    >>> round(variance.between, 3), round(variance.within, 3)
    (0.017, 0.288)
    """
    correlation = as_number("correlation", correlation)
    if not 0.0 <= correlation <= 1.0:
        raise ValueError(f"correlation must lie in [0, 1], got {correlation}")
    variance = split_variance(counts)
    return EvaluationVariance(2.0 * (1.0 - correlation) * max(variance.between, 0.0), 2.0 * variance.within)


@typed
def compared_variance(counts: RewardCounts, other: RewardCounts) -> EvaluationVariance:
    """Estimate the variance of a comparison from two policies' rewards on the same prompts, row by row.

    The part between prompts is the variance of the differences of their means, less what sampling adds to it. The estimate is
    without bias, so it may be below 0.

    Parameters
    ----------
    counts, other : RewardCounts
        Of the same prompts in the same order; each prompt with at least two responses from each.

    Returns
    -------
    EvaluationVariance

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    >>> first = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 0, 0, 0, 1, 1, 1])
    >>> second = gt.RewardCounts.from_rewards(prompts, [1, 1, 1, 0, 1, 0, 1, 1, 0])
    >>> variance = gt.plan.compared_variance(first, second)
    >>> round(variance.within, 3)
    0.333
    """
    if counts.prompts != other.prompts:
        raise ValueError(f"other must be of the same {counts.prompts} prompts as counts, in the same order, got {other.prompts}")
    for name, one in (("counts", counts), ("other", other)):
        if one.sizes.min() < 2:
            raise ValueError(f"{name} must have two responses to every prompt, got one to {int((one.sizes < 2).sum())} of them")
    split = [split_variance(one) for one in (counts, other)]
    noise = sum(one.means.var(ddof=1) - own.between for one, own in zip((counts, other), split, strict=True))
    return EvaluationVariance(float((counts.means - other.means).var(ddof=1) - noise), split[0].within + split[1].within)


def prompts_needed(
    variance: EvaluationVariance, difference: float, responses: int, power: float = 0.8, level: float = 0.95
) -> int:
    """Return the number of evaluation prompts at which a paired t test over prompts finds a difference.

    Parameters
    ----------
    variance : EvaluationVariance
    difference : float
        Of the mean rewards, not 0.
    responses : int
        To each prompt, from each policy.
    power : float, default 0.8
        The probability to find it, with its sign.
    level : float, default 0.95
        One less the size of the two-sided test.

    Returns
    -------
    int
        The least number of prompts, exact if the prompts' differences were normal; 10,000,001 if it would be more.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> variance = gt.plan.EvaluationVariance(between=0.02, within=0.3)
    >>> gt.plan.prompts_needed(variance, difference=0.05, responses=4)
    301
    """
    _check_variance(variance)
    effect = abs(_as_difference(difference)) / sqrt(max(variance.of_mean(1, as_count("responses", responses)), 1e-300))
    return pairs_needed(effect, as_fraction("power", power), check_level(level))


def responses_needed(
    variance: EvaluationVariance, difference: float, prompts: int, power: float = 0.8, level: float = 0.95
) -> int | None:
    """Return how many responses per prompt and policy find a difference with a given number of prompts; None if none do.

    Because every prompt differs in how much better it is answered, more responses cannot replace more prompts. (Whoever asks
    about these very prompts and no others needs no `between`: give it as 0.)

    Examples
    --------
    >>> import grpo_theory as gt
    >>> variance = gt.plan.EvaluationVariance(between=0.02, within=0.3)
    >>> gt.plan.responses_needed(variance, difference=0.05, prompts=200), gt.plan.responses_needed(variance, 0.01, prompts=200)
    (7, None)
    """
    _check_variance(variance)
    difference, prompts = abs(_as_difference(difference)), as_count("prompts", prompts, 2)
    power, level = as_fraction("power", power), check_level(level)

    def enough(responses: float) -> bool:
        spread = sqrt(max(variance.between, 0.0) + variance.within / responses)
        return pairs_needed(difference / max(spread, 1e-150), power, level, most=prompts) <= prompts

    if not enough(1e12):
        return None
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def best_responses(variance: EvaluationVariance, prompt_cost: float, response_cost: float) -> int:
    """Return the number of responses per prompt of least error at a cost of prompts (prompt_cost + responses response_cost).

    It minimises (between + within/G)(a + b G): G = sqrt(within a/(between b)), or a whole number beside it. Where a prompt costs
    nothing beside its responses it is 1: more prompts are always better than more responses.

    Raises
    ------
    ValueError
        If `between` is not above 0 and a prompt costs something: then more responses are always better.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> variance = gt.plan.EvaluationVariance(between=0.02, within=0.3)
    >>> gt.plan.best_responses(variance, prompt_cost=1.0, response_cost=1.0)
    4
    """
    _check_variance(variance)
    a, b = as_not_negative("prompt_cost", prompt_cost), as_positive("response_cost", response_cost)
    if a == 0.0:
        return 1
    if variance.between <= 0.0:
        raise ValueError("variance must have a part between prompts above 0: without one more responses are always better")
    near = max(int(min(sqrt(variance.within * a / (variance.between * b)), 1e9)), 1)
    return min((near, near + 1), key=lambda size: (variance.between + variance.within / size) * (a + b * size))


def evaluation_error(counts: RewardCounts, prompts: int, responses: int) -> float:
    """Predict the standard error of a policy's mean reward on new prompts, with a given number of responses to each.

    It is the root of (between + within/k)/n, from the variance of the prompts' expected rewards and that of a prompt's rewards.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts, at least one with two responses.
    prompts, responses : int
        n and k, of the evaluation.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> [round(gt.plan.evaluation_error(counts, prompts=200, responses=k), 3) for k in (1, 8)]
    [0.034, 0.023]
    """
    variance = split_variance(counts)
    one = EvaluationVariance(variance.between, variance.within)
    return sqrt(one.of_mean(as_count("prompts", prompts), as_count("responses", responses)))


def unpaired_seeds_needed(spread: float, difference: float, power: float = 0.8, level: float = 0.95) -> int:
    """Return the number of runs of each of two settings at which a t test of two samples finds a difference.

    Parameters
    ----------
    spread : float
        The standard deviation of runs between seeds, the same for both settings.
    difference : float
        Of the settings' means, not 0.
    power, level : float
        As for `prompts_needed`.

    Returns
    -------
    int
        The least R >= 2, exact if runs are normal: noncentral t with 2R - 2 degrees of freedom and noncentrality
        sqrt(R/2) difference/spread. 10,000,001 if it would be more.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.plan.unpaired_seeds_needed(spread=0.02, difference=0.02)
    17
    """
    from scipy.stats import nct  # slow to import, and seldom wanted

    effect = min(abs(_as_difference(difference)) / as_positive("spread", spread), LARGEST_EFFECT)
    power, level = as_fraction("power", power), check_level(level)

    def enough(runs: int) -> bool:
        critical = student_quantile(2 * runs - 2, level)
        return bool(nct.sf(critical, 2 * runs - 2, sqrt(runs / 2.0) * effect) >= power)

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low >= MOST_SEEDS:
            return MOST_SEEDS + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return min(high, MOST_SEEDS + 1)


def training_seeds_needed(
    first: Sequence[RewardCounts], second: Sequence[RewardCounts], difference: float, power: float = 0.8, level: float = 0.95
) -> int:
    """Return the number of training seeds at which a paired t test over seeds finds a difference of the mean reward.

    One table says nothing about how runs differ: it takes a pilot of at least two seeds of each setting.

    Parameters
    ----------
    first, second : sequence of RewardCounts
        An evaluation of each run of the one and of the other setting; the r-th of each are from the same seed.
    difference, power, level : float
        As for `gt.intervals.seeds_needed`, which takes the runs' mean rewards from here.

    Returns
    -------
    int

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 1, 1, 2, 2]  # one evaluation for each of three seeds
    >>> first = [gt.RewardCounts.from_rewards(prompts, [1, 1, 1, 0, 1, k]) for k in (0, 1, 1)]
    >>> second = [gt.RewardCounts.from_rewards(prompts, [1, 0, 0, 0, 1, k]) for k in (0, 1, 0)]
    >>> gt.plan.training_seeds_needed(first, second, difference=0.2)
    5
    """
    for name, tables in (("first", first), ("second", second)):
        if not isinstance(tables, Sequence) or len(tables) < 2 or not all(isinstance(one, RewardCounts) for one in tables):
            raise ValueError(f"{name} must be the RewardCounts of at least two runs: one table does not tell how runs differ")
    if len(first) != len(second):
        raise ValueError(f"second must have as many runs as first, {len(first)}, got {len(second)}")
    a, b = (np.array([float(one.means.mean()) for one in tables]) for tables in (first, second))
    return seeds_needed(a, b, difference, power, level)


def _check_variance(variance: EvaluationVariance) -> None:
    if not isinstance(variance, EvaluationVariance):
        raise TypeError("variance must be an EvaluationVariance, as evaluation_variance(counts, correlation) makes")


def _as_difference(difference: float) -> float:
    number = as_number("difference", difference)
    if not isfinite(number) or number == 0.0:
        raise ValueError(f"difference must be finite and not 0, got {difference}")
    return number
