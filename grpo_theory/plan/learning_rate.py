"""The learning rate that keeps the expected step when the group size or the estimator changes."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.average import average_terms, check_pairs, ratio_interval
from grpo_theory.plan.brackets import RateFunction
from grpo_theory.plan.prompt_weights import CONSTANT, raised, slope_function
from grpo_theory.plan.success_rates import SuccessRates, fit_success_rates
from grpo_theory.samples import RewardCounts
from grpo_theory.validation import typed

GRID = 1 << 12


@dataclass(frozen=True, eq=False)
class LearningRateFactor:
    """By what the learning rate is to be multiplied.

    Attributes
    ----------
    factor : Interval
        If the lengths of the prompts' gradients are in proportion to p (1 - p), and they point alike.
    least, most : float
        Whatever the lengths, for the component of the update along any direction in which no prompt's gradient points
        backwards. Where the two are equal the factor is exact.
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
    """Return the factor on the learning rate of plain SGD that keeps the expected step as estimator and group size change.

    The expected updates are E[h'(p) grad p] with each its own h' (docs/derivations.md, sections 24 and 34). Along a direction v
    the steps' ratio is a mean of h'_old/h'_new with the weights h'_new(p) <grad p, v>, and lies between its extremes over p if
    none of these is below 0. Where a prompt's gradient points backwards it may lie anywhere: success rates of 0.05 and 0.5 with
    gradients 1 and -0.5 ask for 2.50 from "trl_grpo" at 8 to 3, and the extremes are 1.5 and 2.14. Rewards do
    not tell the gradients' lengths. Of a softmax policy
    with one token, z its logits, |grad_z p| is p (1 - p) sqrt(s + f), where s is the probability that two successful responses
    are the same one and f that two failed ones are; `factor` takes s + f to be the same at all prompts.
    Adam, which divides by the gradient's size, needs no factor for what multiplies all of h'.

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
        The standard error of `factor` is NaN where the groups are too small to measure it: there the limits hold whatever
        the law of success rates, and the estimate is that of the likeliest law.

    Raises
    ------
    ValueError
        As `weigh_prompts`.
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
