"""Limits of the share of prompts below a success rate, which hold whatever the law of success rates."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.average import average_terms, clipped, mean_interval, stacked
from grpo_theory.plan.brackets import RateFunction
from grpo_theory.plan.success_rates import SuccessRates, check_pairs, fit_success_rates
from grpo_theory.validation import as_real_array, check_within, typed


@typed
def bound_success_rates(
    counts: RewardCounts, rates: ArrayLike, level: float = 0.95, *, law: SuccessRates | None = None
) -> Interval:
    """Bound the share of prompts whose success rate is at most `rates`, for every distribution of success rates.

    Groups of n responses show only the first n moments of the law of success rates. The limits are those of polynomials of
    degree n above and below the step. They hold whatever the law, and stay apart however many prompts there are. The estimate
    is that of the likeliest law (docs/derivations.md, section 34).

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards, and at least two prompts; groups of any sizes.
    rates : array_like, shape (S,)
        In [0, 1].
    level : float, default 0.95
        Of each interval by itself.
    law : SuccessRates, optional
        What `fit_success_rates(counts)` returns, if it is at hand.

    Returns
    -------
    Interval
        Shape (S,); no standard errors.

    Raises
    ------
    ValueError
        If there are not exactly two rewards, or fewer than two prompts.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> interval = gt.plan.bound_success_rates(counts, [0.2])
    >>> round(float(interval.low[0]), 2), round(float(interval.high[0]), 2)
    (0.13, 0.56)
    """
    level = check_level(level)
    check_pairs(counts)
    rates = as_real_array("rates", rates, 1)
    check_within("rates", rates, 0.0, 1.0)
    law = fit_success_rates(counts) if law is None else law
    steps = [RateFunction(np.ones_like, "plain", (1.0,), 0.0, float(rate)) for rate in rates]
    shares = [mean_interval(average_terms(counts, step), float(law.cdf(step.high)), level) for step in steps]
    return clipped(stacked(shares))
