"""Limits of means over prompts of a function of the success rate, and of ratios of two, that hold whatever the law of rates.

From k successes of n responses, exactly the polynomials of degree at most n in the success rate p have unbiased estimates. For
any other function f, the mean over prompts E f(p) lies between the means of a polynomial above f and one below. This holds
whatever the law of p. The two are chosen by linear programming for tight limits (docs/derivations.md, section 34). A poor
choice costs width and never validity. Polynomials have Bernstein's form, whose terms are binomial probabilities.

The limits are not those of a bootstrap over prompts, which a share that is 0 in the table has not (section 34, measured).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.special import betaincinv, betaln, ndtri, stdtrit

from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.success_rates import (
    SuccessRates,
    binomial_table,
    cells,
    check_binary,
    check_prompts,
    fit_success_rates,
    log_choose,
    rate_grid,
)
from grpo_theory.validation import ROUNDING, Array, Integers, as_real_array, check_within, typed

LADDER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48)
"""Degrees at which polynomials are searched; from larger groups the polynomial of the next degree below is estimated."""
ANGLES, FINENESS = 96, 64
"""Steps of the grid on which a polynomial is kept above or below; a grid `FINENESS` times as fine then corrects it."""
DEVIATIONS = 2.0
"""Standard errors that a choice of polynomials has in mind."""
FLATTEST, STEEPEST = 2.0**-6, 2.0**6
"""Bounds of the reference law's parameter."""
UNSEEN = 4.0
"""Prompts that were not drawn and might have been at either end: Agresti and Coull's (1998) four."""
MOST_CELLS = 20
"""Of more different counts the range of the likeliest laws is not computed: it takes long, and they leave little open."""


def bernstein(degree: int, rates: ArrayLike) -> Array:
    """Return the Bernstein polynomials of a degree, P(k successes of it), shape (M, degree + 1)."""
    return binomial_table(np.arange(degree + 1), np.full(degree + 1, degree), rates).T


def beta_binomial(size: int, a: float, b: float) -> Array:
    """Return the probabilities of 0..size successes whose rate has the law beta(a, b)."""
    k = np.arange(size + 1)
    return np.asarray(np.exp(log_choose(size, k) + betaln(a + k, b + size - k) - betaln(a, b)))


@dataclass(frozen=True)
class RateFunction:
    """A function f >= 0 of the success rate on a part of [0, 1], and 0 outside; the key tells f from all others.

    `coefficients` are those of Bernstein's form, if f is a polynomial. The limits hold whether the part's ends count as inside
    or not.
    """

    key: object
    function: Callable[[Array], Array] = field(compare=False)
    coefficients: tuple[float, ...] = field(default=(), compare=False)
    low: float = 0.0
    high: float = 1.0

    def values(self, rates: Array, above: bool) -> Array:
        """Return the function, and at an end of its part the larger of its two values if `above`, or else the smaller."""
        if above:
            inside = (rates >= self.low) & (rates <= self.high)
        else:
            inside = ((rates > self.low) | (self.low <= 0.0)) & ((rates < self.high) | (self.high >= 1.0))
        return np.where(inside, self.function(rates), 0.0)


@dataclass(frozen=True)
class Terms:
    """One term for each prompt, whose means are at most, and at least, the mean of a function of the success rate.

    Attributes
    ----------
    below, above : ndarray, shape (B,)
        The same array where the mean is measured: estimated without bias.
    ends_below, ends_above : (float, float)
        The ranges of the terms.
    responses : int
        The number of responses that they rest on.
    prompts : ndarray or float, default 1.0
        How many prompts have each term; of many tables at once, shape (..., B).
    """

    below: Array
    above: Array
    ends_below: tuple[float, float]
    ends_above: tuple[float, float]
    responses: int
    prompts: Array | float = 1.0

    @property
    def measured(self) -> bool:
        """Whether the mean is estimated without bias."""
        return self.below is self.above


def reference(counts: RewardCounts) -> tuple[float, float]:
    """Return what polynomials are chosen for: a of the law beta(a, a), of which two responses agree as often, and prompts.

    Both are rounded to powers of two, so that the choice hardly sees the data.
    """
    check_prompts(counts)
    n = counts.sizes.astype(np.float64)
    paired = n >= 2.0
    squares = np.asarray(counts.counts.astype(np.float64).power(2).sum(axis=1)).ravel()
    share = float(((squares - n)[paired] / (n * (n - 1.0))[paired]).mean()) if paired.any() else 1.0
    return reference_parameter(share), power_of_two(counts.prompts)


def power_of_two(number: float) -> float:
    """Return the nearest power of two, in ratio."""
    return float(2.0 ** np.round(np.log2(number)))


def reference_parameter(pair_share: float) -> float:
    """Return a for which two responses agree as often as stated if success rates have the law beta(a, a), a power of two."""
    agree = min(max(pair_share, 0.5), 1.0)
    a = (1.0 - agree) / (2.0 * agree - 1.0) if agree > 0.5 else STEEPEST
    return power_of_two(min(max(a, FLATTEST), STEEPEST))


def average_terms(counts: RewardCounts, function: RateFunction, chosen_for: tuple[float, float] | None = None) -> Terms:
    """Return the terms of a function's mean over the prompts, from binary rewards."""
    a, prompts = chosen_for or reference(counts)
    return _terms(counts, function, (a, a, prompts), (np.arange(counts.prompts), counts.successes, counts.sizes), 1.0)


def share_terms(counts: RewardCounts, group_size: int, chosen_for: tuple[float, float] | None = None) -> Terms:
    """Return terms of the prompts whose means are at most, and at least, the share of groups whose rewards are all equal."""
    power, (a, prompts) = group_size - 1, chosen_for or reference(counts)
    if counts.binary:
        # f = p^G + (1-p)^G, a polynomial whose Bernstein coefficients of degree G are 1, 0, ..., 0, 1.
        ends = (1.0, *(0.0,) * power, 1.0)
        whole = RateFunction(("equal", group_size), lambda rate: rate**group_size + (1.0 - rate) ** group_size, ends)
        return average_terms(counts, whole, (a, prompts))
    own = RateFunction(("power", power), lambda rate: rate**power, (*(0.0,) * power, 1.0))
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    same, sizes = counts.counts.data, counts.sizes[rows]
    # E X^(G-1), X the chance of a response's own reward, by the other n - 1 responses (section 34).
    return _terms(counts, own, (a + 1.0, a, prompts), (rows, same - 1, sizes - 1), same / sizes)


def _terms(
    counts: RewardCounts,
    function: RateFunction,
    chosen_for: tuple[float, float, float],
    draws: tuple[Integers, Integers, Integers],
    share: Array | float,
) -> Terms:
    """Return the terms of draws, each of a prompt, with successes of a size, and with a share in its prompt's term."""
    (rows, successes, sizes), pairs = draws, []
    values = np.empty((2, rows.size))
    for size in np.unique(sizes):
        here = sizes == size
        pairs.append(bracket(function, int(size), *chosen_for))
        values[:, here] = np.stack(pairs[-1])[:, successes[here]]
    below, above = (np.bincount(rows, value * share, counts.prompts).astype(np.float64) for value in values)
    ends = [(float(min(map(np.min, side))), float(max(map(np.max, side)))) for side in zip(*pairs, strict=True)]
    measured = all(low is high for low, high in pairs)
    return Terms(below, below if measured else above, ends[0], ends[1], int(counts.sizes.sum()))


def bracket(function: RateFunction, size: int, a: float, b: float, prompts: float) -> tuple[Array, Array]:
    """Return Bernstein coefficients of degree `size` of polynomials below and above a function, shape (size + 1,) each.

    They are chosen for success rates of the law beta(a, b), and for a mean over so many prompts. A polynomial of no higher
    degree than `size` is its own, twice.
    """
    if function.low <= 0.0 and function.high >= 1.0 and 0 < len(function.coefficients) <= size + 1:
        found = [np.array(function.coefficients)]
    else:
        degree = max(degree for degree in LADDER if degree <= size)
        found = [_one_sided(function, degree, a, b, prompts, above) for above in (False, True)]
    k, j = np.arange(size + 1)[:, None], np.arange(found[0].size)
    # (34.1): means over the successes in a draw of fewer responses from these.
    chances = np.exp(log_choose(k, j) + log_choose(size - k, j[-1] - j) - log_choose(size, j[-1]))
    raised = [chances @ one for one in found]
    return raised[0], raised[-1]


@lru_cache(maxsize=4096)
def _one_sided(function: RateFunction, degree: int, a: float, b: float, prompts: float, above: bool) -> Array:
    """Return the polynomial of a degree that is nowhere below the function, or nowhere above it.

    It minimises its mean plus a penalty, or maximises its mean less the penalty. This stands for the standard error: the sum
    over the counts k of sqrt(P(k)) |c_k| is at least the root mean square of c_k.
    """
    sign = 1.0 if above else -1.0
    rates = np.union1d(rate_grid(1, ANGLES), (function.low, function.high))
    chances = beta_binomial(degree, a, b)
    penalty = DEVIATIONS / np.sqrt(prompts) * np.sqrt(chances)
    cost = np.concatenate([penalty + sign * chances, penalty - sign * chances])
    basis = bernstein(degree, rates)
    wanted = function.values(rates, above)
    size = max(float(np.abs(wanted).max()), 1e-300)
    solution = linprog(cost, -sign * np.hstack([basis, -basis]), -sign * wanted / size, bounds=(0.0, None), method="highs")
    if solution.x is None:
        return np.full(degree + 1, float(wanted.max() if above else wanted.min()))
    coefficients = size * (solution.x[: degree + 1] - solution.x[degree + 1 :])
    fine = np.union1d(rate_grid(FINENESS, ANGLES), (function.low, function.high))
    gap = sign * (function.values(fine, above) - bernstein(degree, fine) @ coefficients)
    return np.asarray(coefficients + sign * max(float(gap.max()), 0.0))


def likeliest_range(counts: RewardCounts, group_size: int, law: SuccessRates) -> tuple[float, float]:
    """Return the least and the greatest share of uniform groups by all laws of success rates as likely as the likeliest.

    All have its probabilities of the counts that were seen. So the ends are those of a linear program over laws on the grid
    (section 34). It is what these counts leave open, were there no sampling error. Of more than 20 different counts both ends
    are the mean by the law that was found.

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards.
    group_size : int
    law : SuccessRates
        What `fit_success_rates(counts)` returns.
    """
    (successes, sizes, prompts), grid = cells(counts), rate_grid(1)
    values = grid**group_size + (1.0 - grid) ** group_size
    ends = [float(law.weights @ values[np.searchsorted(grid, law.atoms)])] * 2
    if sizes.size > MOST_CELLS:
        return ends[0], ends[1]
    table = np.vstack([binomial_table(successes, sizes, grid), np.ones(grid.size)])
    # Where the counts are those of a law to rounding, they are fitted themselves, and else what the likeliest law makes of them.
    seen = np.append(prompts / np.bincount(sizes, prompts)[sizes], 1.0)
    for fitted in (seen, table[:, np.searchsorted(grid, law.atoms)] @ law.weights):
        found = [linprog(sign * values, A_eq=table, b_eq=fitted, bounds=(0.0, None)) for sign in (1.0, -1.0)]
        if all(one.success for one in found):
            ends = [found[0].fun, -found[1].fun]
            break
    return min(ends), max(ends)


def mean_interval(
    top: Terms, predicted: float, level: float, bottom: Terms | None = None, sure: tuple[float, float] = (0.0, 1.0)
) -> Interval:
    """Return an interval of a mean, or of the ratio of two, neither below 0, within limits that are sure.

    The estimate is the prediction where it is not measured, moved within the limits: a law may predict a little beyond them.
    """
    limits = mean_limits(top, level) if bottom is None else ratio_limits(top, bottom, level, sure)
    down = np.ones(1) if bottom is None else bottom.below
    estimate, error, mean = predicted, np.nan, float(down.mean())
    if top.measured and (bottom is None or bottom.measured) and mean > 0.0:
        estimate = float(top.below.mean()) / mean
        error = float((top.below - estimate * down).std(ddof=1)) / mean / np.sqrt(top.below.size)
    return Interval(np.clip(estimate, *limits), np.array(error), *limits, level)


def stacked(intervals: list[Interval]) -> Interval:
    """Return intervals of shares as one, shape (S,), within [0, 1], the estimate within and the lower limit not above the upper.

    Limits cross only where rewards are not what they were taken for, as where groups were chosen by their rewards.
    """
    table = np.array([(one.estimate, one.standard_error, one.low, one.high) for one in intervals])
    ends = np.sort(np.clip(table[:, 2:], 0.0, 1.0), axis=1)
    return Interval(np.clip(table[:, 0], ends[:, 0], ends[:, 1]), table[:, 1], ends[:, 0], ends[:, 1], intervals[0].level)


def mean_limits(terms: Terms, level: float) -> tuple[Array, Array]:
    """Return two-sided limits of the mean of independent terms, shape (...): Clopper and Pearson's at an effective size.

    The terms are brought to [0, 1], with mean m and variance s^2. They then tell as much as n = B m (1 - m)/s^2 draws of 0 and
    1 (Korn and Graubard 1998). No law on [0, 1] has more variance than m (1 - m). Few terms may not show the rare large ones,
    so s^2 is taken as if four more terms had the variance m (1 - m). The size n is at most the number of responses, and is
    multiplied by (z/t_{B-1})^2 for the degrees of freedom behind s. So rare events get honest limits, and where many terms
    vary the limits are Student's t.
    """
    ends, tail = [], (1.0 - level) / 2.0
    for values, (least, most), upper in ((terms.below, terms.ends_below, False), (terms.above, terms.ends_above, True)):
        values, weights = np.broadcast_arrays(values, terms.prompts)
        size, span = weights.sum(axis=-1), most - least
        scaled = np.clip((values - least) / (span or 1.0), 0.0, 1.0)
        mean = (weights * scaled).sum(axis=-1) / size
        spread = mean * (1.0 - mean)
        variance = ((weights * (scaled - mean[..., None]) ** 2).sum(axis=-1) + UNSEEN * spread) / (size - 1.0 + UNSEEN)
        worth = np.where(spread > ROUNDING, size * spread / np.where(spread > ROUNDING, variance, 1.0), size)
        effective = np.minimum(worth, np.maximum(terms.responses, size)) * (ndtri(tail) / stdtrit(size - 1, tail)) ** 2
        share = 1.0 - mean if upper else mean  # the upper limit is that of what is missing to 1
        some = share * effective > 0.0
        end = np.where(some, betaincinv(np.where(some, share * effective, 1.0), (1.0 - share) * effective + 1.0, tail), 0.0)
        ends.append(least + span * (1.0 - end if upper else end))
    return ends[0], ends[1]


def ratio_limits(top: Terms, bottom: Terms, level: float, sure: tuple[float, float]) -> tuple[Array, Array]:
    """Return two-sided limits of the ratio of two means, neither below 0, within limits that are sure; shape (...).

    Fieller's limits are the ends of the ratios r at which Student's t does not tell the mean of top - r bottom from 0. Where the
    bottom's mean is not surely above 0, they are those that are sure.
    """
    ends = []
    for above, below, sign, end in ((top.below, bottom.above, -1.0, sure[0]), (top.above, bottom.below, 1.0, sure[1])):
        above, below, weights = np.broadcast_arrays(above, below, top.prompts)
        size = weights.sum(axis=-1)
        square = stdtrit(size - 1, (1.0 + level) / 2.0) ** 2 / (size * (size - 1.0))
        means = [(weights * one).sum(axis=-1) / size for one in (above, below)]
        across, down = (one - mean[..., None] for one, mean in zip((above, below), means, strict=True))
        a = means[1] ** 2 - square * (weights * down**2).sum(axis=-1)
        b = means[0] * means[1] - square * (weights * across * down).sum(axis=-1)
        c = means[0] ** 2 - square * (weights * across**2).sum(axis=-1)
        known = (means[1] > 0.0) & (a > 0.0)
        root = (b + sign * np.sqrt(np.maximum(b**2 - a * c, 0.0))) / np.where(known, a, 1.0)
        ends.append(np.where(known, np.clip(root, *sure), end))
    return ends[0], ends[1]


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
    check_binary(counts)
    rates = as_real_array("rates", rates, 1)
    check_within("rates", rates, 0.0, 1.0)
    law = fit_success_rates(counts) if law is None else law
    steps = [RateFunction("plain", np.ones_like, (1.0,), 0.0, float(rate)) for rate in rates]
    return stacked([mean_interval(average_terms(counts, step), float(law.cdf(step.high)), level) for step in steps])
