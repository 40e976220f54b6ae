"""What an estimator's division and baseline do to the weights of prompts, on the success rates at hand (R1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.average import Terms, average_terms, check_pairs, clipped, mean_interval, ratio_interval, stacked
from grpo_theory.plan.brackets import RateFunction
from grpo_theory.plan.success_rates import SuccessRates, fit_success_rates
from grpo_theory.samples import RewardCounts
from grpo_theory.theory import finite_group_objective
from grpo_theory.validation import as_count, as_numbers, typed

EDGES = (0.2, 0.8)
"""A prompt is hard below the first success rate, easy above the second, and middling between."""
PLAIN = RateFunction(np.ones_like, "plain", (1.0,))
"""The plain gradient's h'."""
CONSTANT = 1e-12
"""The relative variation of coefficients that is rounding."""


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
        E h'(p), the mean weight: the length of the expected update against that of the plain gradient, were the prompts'
        gradients to have nothing to do with their success rates.
    shares : Interval
        Shape (3,): the shares of the whole weight on hard, middling and easy prompts.
    prompts : Interval
        Shape (3,): the shares of hard, middling and easy prompts themselves, which are those of the plain gradient's weight.
    mean_rate : Interval
        E[h'(p) p]/E h'(p), the mean success rate of a prompt drawn in proportion to its weight.

    A standard error that is NaN marks what is not measured: groups too small for h' of this G, and shares of hard and easy
    prompts always. There the limits hold whatever the law of success rates, and the estimate is that of the likeliest law.
    """

    estimator: str
    group_size: int
    slope: Callable[[Array], Array]
    scale: Interval
    shares: Interval
    prompts: Interval
    mean_rate: Interval

    def weight(self, rate: ArrayLike) -> Array:
        """Return the weight of prompts of a success rate, 1 on average over the prompts."""
        return self.slope(as_numbers("rate", rate)) / float(self.scale.estimate)


@typed
def weigh_prompts(
    counts: RewardCounts, estimator: str | Estimator, group_size: int, level: float = 0.95, *, law: SuccessRates | None = None
) -> PromptWeights:
    """Return the weights that an estimator's expected update gives to prompts, on the distribution of success rates at hand.

    On policy and with tokens added up an estimator whose advantages read nothing but the group's rewards has the expected
    update h'(p) grad p at a prompt of success rate p (docs/derivations.md, section 24). The plain gradient has h' = 1, so that
    h'(p) is the prompt's weight. E h'(p) and E h'(p) p are polynomials' means, of degree G - 1 and G, measured where groups are
    as large; shares of hard and easy prompts are not, however large the groups, and are bounded (section 34).

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
        stacked([ratio_interval(part, bottom, of / total, level, (0.0, 1.0)) for part, of in _classes(counts, slope, law)]),
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


def _classes(counts: RewardCounts, function: RateFunction, law: SuccessRates) -> list[tuple[Terms, float]]:
    """Return the terms of a function's means on hard, middling and easy prompts, and what the likeliest law says of each."""
    found = []
    for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True):
        part = replace(function, low=low, high=high)
        found.append((average_terms(counts, part), float(law.weights @ part.values(law.atoms, above=low > 0.0 and high < 1.0))))
    return found
