"""The expected step of an estimator: how it weights prompts (R1), and the learning rate that keeps its length."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.average import Terms, average_terms, clipped, mean_interval, ratio_interval, stacked
from grpo_theory.plan.brackets import RateFunction
from grpo_theory.plan.success_rates import SuccessRates, check_pairs, fit_success_rates
from grpo_theory.theory import finite_group_objective
from grpo_theory.validation import Array, as_count, as_numbers, typed

EDGES = (0.2, 0.8)
"""A prompt is hard below the first success rate, easy above the second, and middling between."""
PLAIN = RateFunction(np.ones_like, "plain", (1.0,))
"""The plain gradient's h'."""
CONSTANT = 1e-12
"""The relative variation of coefficients that is rounding."""
GRID = 1 << 12
"""Steps of success rates from 0 to 1."""


@dataclass(frozen=True, eq=False)
class PromptWeights:
    """The weights that an estimator's expected update gives to prompts: h'(p) grad p at success rate p.

    Attributes
    ----------
    estimator : str
    group_size : int
    slope : callable
        h', of success rates in an array.
    scale : Interval
        E h'(p), the mean weight. It is the length of the expected update over that of the plain gradient, if the prompts'
        gradients do not depend on their success rates.
    shares : Interval
        Shape (3,): the shares of the whole weight on hard, middling and easy prompts, as if all gradients were of one length.
    step_shares : Interval
        Shape (3,): their shares of the expected step, by h'(p) p (1 - p). The length of a prompt's gradient is taken to be in
        proportion to p (1 - p), as for a softmax policy with one token.
    prompts : Interval
        Shape (3,): the shares of hard, middling and easy prompts themselves, which are those of the plain gradient's weight.
    mean_rate : Interval
        E[h'(p) p]/E h'(p), the mean success rate of a prompt drawn in proportion to its weight.

    A standard error that is NaN marks what is not measured. Shares of hard and easy prompts never are; the rest is not where
    groups are too small for h' of this G. There the limits hold whatever the law of success rates, and the estimate is that of
    the likeliest law.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> found = gt.plan.weigh_prompts(counts, "grpo", 8)
    >>> found.weight([0.1, 0.5]).round(2).tolist()
    [1.07, 0.85]
    """

    estimator: str
    group_size: int
    slope: Callable[[Array], Array]
    scale: Interval
    shares: Interval
    step_shares: Interval
    prompts: Interval
    mean_rate: Interval

    def weight(self, rate: ArrayLike) -> Array:
        """Return the weight of prompts of a success rate, 1 on average over the prompts."""
        return self.slope(as_numbers("rate", rate)) / float(self.scale.estimate)


@typed
def weigh_prompts(
    counts: RewardCounts, estimator: str | Estimator, group_size: int, level: float = 0.95, *, law: SuccessRates | None = None
) -> PromptWeights:
    """Estimate how much weight an estimator's expected update gives to hard, middling and easy prompts.

    The estimator's advantages must read nothing but the group's rewards. On policy, and with tokens added up, its expected
    update is then h'(p) grad p at a prompt of success rate p (docs/derivations.md, section 24). The plain gradient has h' = 1,
    so that h'(p) is the prompt's weight. E h'(p) and E h'(p) p are polynomials' means, of degree G - 1 and G, measured where
    groups are as large. Shares of hard and easy prompts are not measured, however large the groups, and are bounded (section
    34).

    Unless prompts are few, intervals of the shares cover nearly always, because they are bounds that cannot close. `mean_rate` of
    "max_rl" covers too rarely in large groups of few prompts, because its weight reaches G on prompts too rare to be among few.

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards, and at least two prompts; groups of any sizes.
    estimator : str or Estimator
        With h' >= 0, as every named one that reads only rewards has.
    group_size : int
        That of the training in question, which need not be that of the counts.
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
        If there are not exactly two rewards, fewer than two prompts, or the estimator has no h, or one that falls.

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
    level = check_level(level)
    check_pairs(counts)
    slope = slope_function(counts, estimator, group_size)
    law = fit_success_rates(counts) if law is None else law
    times_rate = RateFunction(lambda rate: slope.function(rate) * rate, (slope.key, "times rate"), raised(slope.coefficients))
    bottom, total = average_terms(counts, slope), law.average(slope.function)
    mean_rate = ratio_interval(
        average_terms(counts, times_rate), bottom, law.average(times_rate.function) / total, level, (0.0, 1.0)
    )
    return PromptWeights(
        find(estimator).name,
        as_count("group_size", group_size),
        slope.function,
        mean_interval(bottom, total, level),
        _shares(counts, slope, law, level),
        _shares(counts, times_variance(slope), law, level),
        clipped(stacked([mean_interval(part, of, level) for part, of in _classes(counts, PLAIN, law)])),
        mean_rate,
    )


def slope_function(counts: RewardCounts, estimator: str | Estimator, group_size: int) -> RateFunction:
    """Return h' of an estimator for the two rewards of the counts; raise ValueError if it is below 0 somewhere."""
    low, high = (float(value) for value in counts.values)
    objective = finite_group_objective(estimator, group_size, (low, high))
    coefficients = tuple(objective.coefficients.tolist())
    if max(coefficients) - min(coefficients) <= CONSTANT * max(coefficients):
        coefficients = (coefficients[0],)
    if min(coefficients) < 0.0 or max(coefficients) <= 0.0:
        raise ValueError(f"estimator {find(estimator).name!r} must give a success no less than a failure among the same others")
    return RateFunction(objective.slope, coefficients, coefficients)


def raised(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Return the Bernstein coefficients of a polynomial times the rate: p times the j-th of degree d is (j+1)/(d+1) the next."""
    degree = len(coefficients)
    return (0.0, *((j + 1.0) / degree * one for j, one in enumerate(coefficients)))


def _shares(counts: RewardCounts, function: RateFunction, law: SuccessRates, level: float) -> Interval:
    """Return the shares of a function's mean on hard, middling and easy prompts, shape (3,)."""
    bottom, total = average_terms(counts, function), law.average(function.function)
    shares = [
        ratio_interval(part, bottom, of / total if total > 0.0 else np.nan, level, (0.0, 1.0))
        for part, of in _classes(counts, function, law)
    ]
    return stacked(shares)


def _classes(counts: RewardCounts, function: RateFunction, law: SuccessRates) -> list[tuple[Terms, float]]:
    """Return the terms of a function's means on hard, middling and easy prompts, and what the likeliest law says of each."""
    classes = []
    for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True):
        part = replace(function, low=low, high=high)
        classes.append((average_terms(counts, part), float(law.weights @ part.values(law.atoms, above=low > 0.0 and high < 1.0))))
    return classes


@dataclass(frozen=True, eq=False)
class LearningRateFactor:
    """The factor by which to multiply the learning rate.

    Attributes
    ----------
    factor : Interval
        The factor if the lengths of the prompts' gradients are in proportion to p (1 - p), and these point alike.
    least, most : float
        Its limits whatever the lengths, for the component of the update along any direction in which no prompt's gradient
        points backwards. Where the two are equal the factor is exact.

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

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards, and at least two prompts; groups of any sizes.
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
    check_pairs(counts)
    slopes = [slope_function(counts, *_setting(name, setting)) for name, setting in (("old", old), ("new", new))]
    least, most = ratio_range(*slopes)
    if most - least <= CONSTANT * most:
        exact = np.array((least + most) / 2.0)
        return LearningRateFactor(Interval(exact, np.array(0.0), exact, exact, level), float(exact), float(exact))
    law = fit_success_rates(counts) if law is None else law
    moved = [times_variance(slope) for slope in slopes]
    means = [law.average(one.function) for one in moved]
    predicted = means[0] / means[1] if means[1] > 0.0 else np.sqrt(least) * np.sqrt(most)
    top_terms, bottom_terms = (average_terms(counts, one) for one in moved)
    return LearningRateFactor(ratio_interval(top_terms, bottom_terms, predicted, level, (least, most)), least, most)


def ratio_range(top: RateFunction, bottom: RateFunction) -> tuple[float, float]:
    """Return the least and the greatest ratio of two functions over the success rates, on a grid of 4,097 points."""
    rates = np.linspace(0.0, 1.0, GRID + 1)
    above, below = top.function(rates), bottom.function(rates)
    ratios = np.divide(above, below, out=np.full_like(above, np.inf), where=below > 0.0)[(above > 0.0) | (below > 0.0)]
    return float(ratios.min()), float(ratios.max())


def _setting(name: str, setting: tuple[str | Estimator, int]) -> tuple[str | Estimator, int]:
    if not isinstance(setting, tuple | list) or len(setting) != 2:
        raise ValueError(f"{name} must be an estimator and a group size, such as ('grpo', 8)")
    return setting[0], setting[1]


def times_variance(slope: RateFunction) -> RateFunction:
    """Return a function times p (1 - p)."""
    by_rate = np.array(raised(slope.coefficients))
    degree = by_rate.size
    lessened = (*(by_rate * (degree - np.arange(degree)) / degree), 0.0)
    return RateFunction(lambda rate: slope.function(rate) * rate * (1.0 - rate), (slope.key, "times variance"), lessened)
