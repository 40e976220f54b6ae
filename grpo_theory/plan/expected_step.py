"""The expected step of an estimator: how it weights prompts (R1), and the learning rate that keeps its length."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.exact.multisets import count_multisets
from grpo_theory.intervals.interval import Interval, check_level
from grpo_theory.intervals.rollouts import RewardCounts
from grpo_theory.plan.efficiency import MOST_TERMS, MOST_VALUES, group_table, mean_advantages
from grpo_theory.plan.success_rates import RateFunction, SuccessRates, average_terms, fit_success_rates, mean_interval, stacked
from grpo_theory.theory import finite_group_objective
from grpo_theory.validation import Array, Flags, as_count, typed

EDGES = (0.2, 0.8)
"""A prompt is hard if its success rate is at most the first, easy above the second, and middling between. Graded rewards count by
their mean, on the range of the rewards."""
PLAIN = RateFunction("plain", np.ones_like, (1.0,))
"""The plain gradient's h'."""
CONSTANT = 1e-12
"""The relative variation of coefficients that is rounding."""
GRID = 1 << 12
"""Steps of success rates from 0 to 1."""


@dataclass(frozen=True, eq=False)
class PromptWeights:
    """How an estimator's expected step is shared among hard, middling and easy prompts.

    Attributes
    ----------
    estimator : str
    group_size : int
    step_shares : Interval
        Shape (3,): the shares of the expected step, by h'(p) p (1 - p). The length of a prompt's gradient is taken to be in
        proportion to p (1 - p), as for a softmax policy with one token. With graded rewards it is taken to be in proportion to
        the variance of the prompt's rewards.
    prompts : Interval
        Shape (3,): the shares of hard, middling and easy prompts themselves, which are those of the plain gradient's weight.
    used : int
        The prompts that this rests on. Of graded rewards those with so many responses: the others say nothing about such groups.
    scale : Interval or None
        E h'(p), the mean weight; this and what follows are None for graded rewards. It is the length of the expected update over
        that of the plain gradient, if the prompts' gradients do not depend on their success rates.
    shares : Interval or None
        Shape (3,): of the whole weight, as if all gradients were of one length.
    mean_rate : Interval or None
        E[h'(p) p]/E h'(p), the mean success rate of a prompt drawn in proportion to its weight.

    A standard error that is NaN marks what is not measured. With two rewards shares of hard and easy prompts never are; the rest
    is not where groups are too small for h' of this G. There the limits hold whatever the law of success rates, and the estimate
    is that of the likeliest law.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> rewards = [0.0, 0.5, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 1.0, 0.5]
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(4), 4), rewards)
    >>> found = gt.plan.weigh_prompts(counts, "grpo", 4)
    >>> found.used, found.prompts.estimate.round(2).tolist(), found.scale
    (4, [0.25, 0.5, 0.25], None)
    """

    estimator: str
    group_size: int
    step_shares: Interval
    prompts: Interval
    used: int
    scale: Interval | None = None
    shares: Interval | None = None
    mean_rate: Interval | None = None


@typed
def weigh_prompts(
    counts: RewardCounts, estimator: str | Estimator, group_size: int, level: float = 0.95, *, law: SuccessRates | None = None
) -> PromptWeights:
    """Estimate how much of an estimator's expected update hard, middling and easy prompts get.

    The estimator's advantages must read nothing but the group's rewards. Let there be two rewards, on policy, with tokens added
    up. Its expected update is then h'(p) grad p at a prompt of success rate p (docs/derivations.md, section 24). The plain
    gradient has h' = 1, so that h'(p) is the prompt's weight. E h'(p) and E h'(p) p are polynomials' means, of degree G - 1 and
    G, measured where groups are as large. Shares of hard and easy prompts are not measured, however large the groups, and are
    bounded (section 34).

    With more rewards a prompt's share is in proportion to the covariance of a response's advantage with its reward. This is
    averaged over all subgroups of so many of the prompt's responses. It is the length of the prompt's part of the expected step
    if the expected score given the reward is linear in the reward. Prompts are classed by the mean of their logged rewards,
    which is noisy in small groups. The limits of the shares of the step are those of a bootstrap over prompts.

    With two rewards, unless prompts are few, intervals of the shares cover nearly always, because they are bounds that cannot
    close. `mean_rate` of "max_rl" covers too rarely in large groups of few prompts, because its weight reaches G on prompts too
    rare to be among few.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts; groups of any sizes. At most 8 different rewards, unless the estimator only subtracts a baseline.
    estimator : str or Estimator
        With h' >= 0, as every named one that reads only rewards has.
    group_size : int
        That of the training in question, which need not be that of the counts if there are two rewards.
    level : float, default 0.95
        Of each interval by itself.
    law : SuccessRates, optional
        What `fit_success_rates(counts)` returns, if it is at hand.

    Returns
    -------
    PromptWeights

    Raises
    ------
    ValueError
        If there are fewer than two prompts, or the estimator has no h, or one that falls. With graded rewards if there are more
        than 8, or fewer than two prompts with so many responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.weigh_prompts(counts, "grpo", 8)
    >>> found.prompts.estimate.round(2).tolist(), found.step_shares.estimate.round(2).tolist()
    ([0.45, 0.5, 0.05], [0.24, 0.73, 0.03])
    """
    level, size, name = check_level(level), as_count("group_size", group_size), find(estimator).name
    if not counts.binary:
        from statsmodels.stats.proportion import proportion_confint  # slow to import, and seldom wanted

        large = counts.sizes >= max(size, 2)
        if large.sum() < 2 or size < 2:
            least = f"at least 2 prompts with {max(size, 2)} responses for groups of {size}"
            raise ValueError(f"counts must have {least}, got {large.sum()}")
        parts, span = _covariances(counts, find(estimator), size, large), float(counts.values[-1] - counts.values[0]) or 1.0
        place = np.searchsorted(EDGES, (counts.means[large] - counts.values[0]) / span)
        classes, many = (place == np.arange(3)[:, None]).astype(np.float64), place.size
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = bootstrap_limits(lambda often: often @ (classes * parts).T / (often @ parts)[:, None], many, level)
        found = classes.mean(axis=1)
        low, high = proportion_confint(classes.sum(axis=1), many, 1.0 - level, method="beta")
        prompts = Interval(found, np.sqrt(found * (1.0 - found) / (many - 1.0)), np.nan_to_num(low), high, level)
        return PromptWeights(name, size, shares, prompts, many)
    slope = slope_function(counts, estimator, group_size)
    law = fit_success_rates(counts) if law is None else law
    bottom, total = average_terms(counts, slope), law.average(slope.function)
    rising = times_rate(slope)
    rate = law.average(rising.function) / total
    return PromptWeights(
        name,
        size,
        _shares(counts, times_variance(slope), law, level),
        _shares(counts, PLAIN, law, level),
        counts.prompts,
        mean_interval(bottom, total, level),
        _shares(counts, slope, law, level),
        mean_interval(average_terms(counts, rising), rate, level, bottom),
    )


def _shares(counts: RewardCounts, function: RateFunction, law: SuccessRates, level: float) -> Interval:
    """Return the shares of a function's mean on hard, middling and easy prompts, shape (3,)."""
    bottom, total, shares = average_terms(counts, function), law.average(function.function), []
    for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True):
        part = replace(function, low=low, high=high)
        terms, of = average_terms(counts, part), float(law.weights @ part.values(law.atoms, above=low > 0.0 and high < 1.0))
        if function is PLAIN:
            shares.append(mean_interval(terms, of, level))
        else:
            shares.append(mean_interval(terms, of / total if total > 0.0 else np.nan, level, bottom))
    return stacked(shares)


def _covariances(counts: RewardCounts, estimator: Estimator, size: int, large: Flags) -> Array:
    """Return the mean over subgroups of advantage times (reward less the prompt's mean), of each large prompt."""
    values, held = counts.values, counts.counts[np.flatnonzero(large)].toarray()
    if values.size > MOST_VALUES:
        raise ValueError(
            f"counts must have at most {MOST_VALUES} different rewards for the weights of prompts, got {values.size}. Round them "
            '(--reward "round(reward, 1)") to take those that differ by little for equal'
        )
    distinct, which = np.unique(held, axis=0, return_inverse=True)
    if len(distinct) * count_multisets(values.size, size) > MOST_TERMS:
        raise ValueError(f"group_size must be smaller for {values.size} different rewards: there are too many groups of {size}")
    by_value = mean_advantages(distinct, group_table(estimator, tuple(values.tolist()), size))
    means = distinct @ values / distinct.sum(axis=1)
    above = distinct * (values - means[:, None])
    return np.asarray((by_value * above).sum(axis=1) / size)[which.ravel()]


def slope_function(counts: RewardCounts, estimator: str | Estimator, group_size: int) -> RateFunction:
    """Return h' of an estimator for the two rewards of the counts; raise ValueError if it is below 0 somewhere."""
    low, high = (float(value) for value in counts.values)
    objective = finite_group_objective(estimator, group_size, (low, high))
    coefficients = tuple(objective.coefficients.tolist())
    if max(coefficients) - min(coefficients) <= CONSTANT * max(coefficients):
        coefficients = (coefficients[0],)
    if min(coefficients) < 0.0 or max(coefficients) <= 0.0:
        raise ValueError(f"estimator {find(estimator).name!r} must give a success no less than a failure among the same others")
    return RateFunction(coefficients, objective.slope, coefficients)


def times_rate(slope: RateFunction) -> RateFunction:
    """Return a function times p: p times the j-th Bernstein polynomial of degree d is (j+1)/(d+1) times the next of d + 1."""
    degree = len(slope.coefficients)
    raised = (0.0, *((j + 1.0) / degree * one for j, one in enumerate(slope.coefficients)))
    return RateFunction((slope.key, "times rate"), lambda rate: slope.function(rate) * rate, raised)


def times_variance(slope: RateFunction) -> RateFunction:
    """Return a function times p (1 - p)."""
    by_rate = np.array(times_rate(slope).coefficients)
    degree = by_rate.size
    lessened = (*(by_rate * (degree - np.arange(degree)) / degree).tolist(), 0.0)
    return RateFunction((slope.key, "times variance"), lambda rate: slope.function(rate) * rate * (1.0 - rate), lessened)


@dataclass(frozen=True, eq=False)
class LearningRateFactor:
    """The factor by which to multiply the learning rate.

    Attributes
    ----------
    factor : Interval
        The factor if the lengths of the prompts' gradients are in proportion to p (1 - p), and these point alike. With graded
        rewards they are in proportion to the variance of the rewards.
    least, most : float
        Its limits whatever the lengths, for the component of the update along any direction in which no prompt's gradient
        points backwards. Where the two are equal the factor is exact. With graded rewards the range is that over the prompts
        of the log.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.learning_rate_factor(counts, old=("dr_grpo", 8), new=("dr_grpo", 2))
    >>> round(found.least, 3), round(found.most, 3)
    (1.75, 1.75)
    """

    factor: Interval
    least: float
    most: float


@typed
def learning_rate_factor(
    counts: RewardCounts,
    old: tuple[str | Estimator, int],
    new: tuple[str | Estimator, int],
    level: float = 0.95,
    *,
    law: SuccessRates | None = None,
) -> LearningRateFactor:
    """Estimate the learning-rate factor that keeps the expected SGD step when estimator or group size change.

    The expected updates are E[h'(p) grad p], each with its own h' (docs/derivations.md, sections 24 and 34). Along a direction
    v the steps' ratio is a mean of h'_old/h'_new with the weights h'_new(p) <grad p, v>. It lies between the extremes of
    h'_old/h'_new over p if none of these weights is below 0. Where a prompt's gradient points backwards it may lie anywhere.
    For example, take success rates of 0.05 and 0.5 with gradients 1 and -0.5. They ask for a factor of 2.50 from "trl_grpo" at
    8 to 3, where the extremes are 1.5 and 2.14.

    Rewards do not tell the gradients' lengths. For a softmax policy with one token and logits z, |grad_z p| is
    p (1 - p) sqrt(s + f). Here s is the probability that two successful responses are the same one, and f that two failed ones
    are. `factor` takes s + f to be the same at all prompts. Adam divides by the gradient's size, and so needs no factor for what
    multiplies all of h'.

    With more than two rewards the factor is the ratio of the mean covariances of advantage and reward, as in `weigh_prompts`.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts; groups of any sizes.
    old, new : (str or Estimator, int)
        Estimator and group size.
    level : float, default 0.95
    law : SuccessRates, optional
        What `fit_success_rates(counts)` returns, if it is at hand.

    Returns
    -------
    LearningRateFactor
        The standard error of `factor` is NaN where the groups are too small to measure it. There the limits hold whatever the
        law of success rates, and the estimate is that of the likeliest law.

    Raises
    ------
    ValueError
        As `weigh_prompts`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.learning_rate_factor(counts, old=("grpo", 8), new=("grpo", 4))
    >>> round(float(found.factor.estimate), 2)
    1.33
    """
    level = check_level(level)
    for name, setting in (("old", old), ("new", new)):
        if not isinstance(setting, tuple | list) or len(setting) != 2:
            raise ValueError(f"{name} must be an estimator and a group size, such as ('grpo', 8)")
    if not counts.binary:
        settings = [(find(name), as_count("group_size", size, 2)) for name, size in (old, new)]
        affine = [
            one for one in (affine_coefficients(estimator.advantage, size) for estimator, size in settings) if one is not None
        ]
        if len(affine) == 2 and np.abs([one[2:] for one in affine]).max() <= CONSTANT:
            # E[(own Z_i + total sum Z) (Z_i - E Z)] = (own + total) var Z: the others are independent of Z_i.
            return _exactly(float(sum(affine[0][:2]) / sum(affine[1][:2])), level)
        large = counts.sizes >= max(size for _, size in settings)
        if large.sum() < 2:
            raise ValueError(f"counts must have at least 2 prompts with {max(size for _, size in settings)} responses")
        top, bottom = (_covariances(counts, estimator, size, large) for estimator, size in settings)
        some = bottom > 0.0
        if not some.any():
            raise ValueError("counts must have a prompt whose rewards differ")
        with np.errstate(invalid="ignore", divide="ignore"):
            found = bootstrap_limits(lambda often: (often @ top / (often @ bottom))[:, None], top.size, level)
        factor = Interval(found.estimate[0], found.standard_error[0], found.low[0], found.high[0], level)
        ratios = top[some] / bottom[some]
        return LearningRateFactor(factor, float(ratios.min()), float(ratios.max()))
    slopes = [slope_function(counts, *setting) for setting in (old, new)]
    least, most = ratio_range(slopes[0].function, slopes[1].function)
    if most - least <= CONSTANT * most:
        return _exactly((least + most) / 2.0, level)
    law = fit_success_rates(counts) if law is None else law
    moved = [times_variance(slope) for slope in slopes]
    means = [law.average(one.function) for one in moved]
    predicted = means[0] / means[1] if means[1] > 0.0 else np.sqrt(least) * np.sqrt(most)
    top_terms, bottom_terms = (average_terms(counts, one) for one in moved)
    return LearningRateFactor(mean_interval(top_terms, predicted, level, bottom_terms, (least, most)), least, most)


def _exactly(factor: float, level: float) -> LearningRateFactor:
    exact = np.array(factor)
    return LearningRateFactor(Interval(exact, np.array(0.0), exact, exact, level), factor, factor)


def ratio_range(top: Callable[[Array], Array], bottom: Callable[[Array], Array]) -> tuple[float, float]:
    """Return the least and the greatest ratio of two functions over the success rates, on a grid of 4,097 points."""
    rates = np.linspace(0.0, 1.0, GRID + 1)
    above, below = top(rates), bottom(rates)
    ratios = np.divide(above, below, out=np.full_like(above, np.inf), where=below > 0.0)[(above > 0.0) | (below > 0.0)]
    return float(ratios.min()), float(ratios.max())


DRAWS, BLOCK, MOST_GROUPS = 2000, 250, 256
"""Resampled sets of prompts, how many are looked at together, and into how many groups the jackknife divides the prompts."""
SEED = 20261129


def bootstrap_limits(statistic: Callable[[Array], Array], prompts: int, level: float, draws: int = DRAWS) -> Interval:
    """Return bias-corrected and accelerated limits (BCa, Efron 1987) of L statistics of B prompts, each of shape (L,).

    Limits from few prompts would be too narrow. So the normal quantile is replaced by Student's times the root of B/(B - 1)
    (Hesterberg 2015, section 5.3). The draws have a fixed seed: the same data have the same limits.

    Parameters
    ----------
    statistic : callable
        From how often each prompt stands in R samples, shape (R, B), of whole numbers as float64, to the statistics (R, L). Where
        a sample has no value it may be NaN, or infinite. Products of two different prompts must leave out a prompt's product
        with a copy of itself.
    prompts : int
        B of at least 2.
    level : float
    draws : int, default 2000
    """
    rng, chance = np.random.default_rng(SEED), np.full(prompts, 1.0 / prompts)
    sizes = [BLOCK] * (draws // BLOCK) + [draws % BLOCK] * (draws % BLOCK > 0)
    found = np.concatenate([statistic(rng.multinomial(prompts, chance, size).astype(np.float64)) for size in sizes])
    estimate = statistic(np.ones((1, prompts)))[0]
    groups = min(prompts, MOST_GROUPS)
    left_out = (np.arange(prompts) % groups != np.arange(groups)[:, None]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        jackknife = np.concatenate([statistic(part) for part in np.array_split(left_out, -(-groups // BLOCK))])
        moved = np.nan_to_num(jackknife.mean(axis=0) - jackknife, nan=0.0, posinf=0.0, neginf=0.0)
        # z0 = Phi^-1(share of draws below the estimate), a = sum d^3/(6 (sum d^2)^1.5): Efron and Tibshirani 1993, 14.3.
        share = ((found < estimate).mean(axis=0) + (found <= estimate).mean(axis=0)) / 2.0
        share = np.clip(share, 0.5 / draws, 1.0 - 0.5 / draws)
        squares = (moved**2).sum(axis=0)
        z0 = ndtri(share)
        acceleration = np.where(squares > 0.0, (moved**3).sum(axis=0) / (6.0 * np.maximum(squares, 1e-300) ** 1.5), 0.0)
        quantile = np.sqrt(prompts / (prompts - 1.0)) * float(stdtrit(prompts - 1, (1.0 + level) / 2.0))
        limits = []
        for side in (-1.0, 1.0):
            z = z0 + side * quantile
            # Where the acceleration takes z past its pole, the limit is the last draw on that side.
            bend = 1.0 - acceleration * z
            at = np.where(bend > 0.0, ndtr(z0 + z / np.maximum(bend, 1e-12)), 0.5 + side / 2.0)
            ordered = np.sort(np.where(np.isnan(found), side * np.inf, found), axis=0)
            place = np.clip(np.round(at * (draws + 1.0)) - 1.0, 0, draws - 1).astype(np.int64)
            limits.append(np.take_along_axis(ordered, place[None], axis=0)[0])
        error = np.std(found, axis=0, ddof=1)
    return Interval(estimate, error, np.minimum(limits[0], estimate), np.maximum(limits[1], estimate), level)
