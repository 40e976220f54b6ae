"""How success rates are distributed over prompts: likeliest laws, and limits of means that hold whatever the law.

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
from scipy.optimize import linprog, minimize, nnls
from scipy.special import betaln, expit, gammaln, ndtri, psi, stdtrit, xlog1py, xlogy

from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import binomial_limits, check_level
from grpo_theory.intervals.rollouts import RewardCounts
from grpo_theory.validation import ROUNDING, Array, Integers, as_count, as_fraction, as_real_array, check_within, read_only, typed

GAP = 1e-7
"""By so much a prompt's mean log-likelihood may fall short of the highest."""
LARGEST_LOG_PRECISION = 14.0
"""Beyond it, a precision of a million, all prompts have one success rate for any purpose."""
LADDER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48)
"""Degrees at which polynomials are searched; from larger groups the polynomial of the next degree below is estimated."""
ANGLES, FINENESS = 96, 64
"""Steps of the grid on which a polynomial is kept above or below; a grid `FINENESS` times as fine then corrects it."""
FLATTEST, STEEPEST = 2.0**-6, 2.0**6
"""Bounds of the reference law's parameter."""
UNSEEN = 4.0
"""Prompts that were not drawn and might have been at either end: Agresti and Coull's (1998) four."""
MOST_CELLS = 20
"""Of more different counts the range of the likeliest laws is not computed: it takes long, and they leave little open."""
OPEN = 0.05
"""A share that the log leaves open by more than this, whatever its prompts, is not estimated: its limits alone are given."""


@lru_cache(maxsize=8)
def rate_grid(fineness: int, angles: int = 1024) -> Array:
    """Return success rates from 0 to 1, ascending: steps of equal angle, times the fineness, and the hundredths.

    The angle's squared sine is the rate, so that steps are equal in standard errors of a rate.
    """
    steps = np.linspace(0.0, np.pi / 2.0, fineness * angles + 1)
    return read_only(np.unique(np.concatenate([np.sin(steps) ** 2, np.linspace(0.0, 1.0, 101)])))


def log_choose(n: ArrayLike, k: ArrayLike) -> Array:
    """Return log C(n, k) of whole numbers, n >= 0; -inf where k is below 0 or above n, of which the factorial is infinite."""
    n, k = np.asarray(n), np.asarray(k)
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def binomial_table(successes: ArrayLike, sizes: ArrayLike, rates: ArrayLike) -> Array:
    """Return P(successes of size) at each rate, shape (C, M)."""
    k, n, p = np.asarray(successes)[:, None], np.asarray(sizes)[:, None], np.asarray(rates)
    return np.asarray(np.exp(xlogy(k, p) + xlog1py(n - k, -p) + log_choose(n, k)))


def cells(counts: RewardCounts) -> tuple[Integers, Integers, Array]:
    """Return the distinct pairs of successes and size among prompts, shape (C,) each, and how many prompts have each."""
    if not counts.binary:
        told = f"counts must be of two different rewards, got {counts.values.size}"
        raise ValueError(f"{told}: count a reward above a threshold as success")
    (sizes, successes), prompts = np.unique([counts.sizes, counts.successes], axis=1, return_counts=True)
    return successes, sizes, prompts.astype(np.float64)


@dataclass(frozen=True, eq=False)
class SuccessRates:
    """A maximum-likelihood distribution of success rates over prompts, on finitely many atoms.

    Groups of n responses identify only the first n moments of the law. Averages of polynomials of degree at most n are
    estimated without bias. All else, above all where the atoms lie, rests on what the optimiser found: other laws may be as
    likely. `bound_success_rates` and `estimate_uniform_shares` say what the counts leave open.

    Attributes
    ----------
    atoms, weights : ndarray, shape (A,)
        Success rates, ascending, and the share of the prompts at each.
    log_likelihood : float
        Of the counts, binomial coefficients included.
    gap : float
        By how much a prompt's mean log-likelihood can fall short of that of the best law on [0, 1], at most.
    moments : int
        How many moments the counts identify: the size of the largest group.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> law = gt.plan.fit_success_rates(counts)
    >>> round(float(law.cdf(0.5)), 2), round(float(law.quantile(0.5)), 2), round(law.average(lambda p: p), 2)
    (0.71, 0.39, 0.36)
    """

    atoms: Array
    weights: Array
    log_likelihood: float
    gap: float
    moments: int

    @property
    def mean(self) -> float:
        """The mean success rate."""
        return float(self.weights @ self.atoms)

    @property
    def variance(self) -> float:
        """The variance of success rates between prompts."""
        return float(self.weights @ (self.atoms - self.mean) ** 2)

    def cdf(self, rate: ArrayLike) -> Array:
        """Return the share of prompts whose success rate is at most `rate`, of its shape."""
        below = np.searchsorted(self.atoms, np.asarray(rate, dtype=np.float64), side="right")
        return np.append(0.0, np.minimum(np.cumsum(self.weights), 1.0))[below]

    def quantile(self, share: ArrayLike) -> Array:
        """Return the least success rate that at least a `share` of the prompts do not exceed, of its shape."""
        shares = np.asarray(share, dtype=np.float64)
        check_within("share", shares, 0.0, 1.0)
        at = np.searchsorted(np.cumsum(self.weights), shares * (1.0 - 1e-12))
        return self.atoms[np.minimum(at, self.atoms.size - 1)]

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over prompts of a function of the success rate, which takes and returns an array."""
        return float(self.weights @ function(self.atoms))


@typed
def fit_success_rates(counts: RewardCounts) -> SuccessRates:
    """Fit the distribution of success rates over prompts by nonparametric maximum likelihood.

    This is Kiefer and Wolfowitz's estimate: given its success rate, a prompt's successes are binomial. The problem is convex,
    and is solved by constrained Newton steps (Wang 2007). A step maximises the quadratic approximation by non-negative least
    squares. It does so over all weights of the present atoms and of the highest peaks of the likelihood's slope. The slope
    certifies the result. The law is best when its slope nowhere exceeds 1, and `gap` is by how much it does on a grid four
    times as fine.

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards; groups of any sizes. The greater reward is success.

    Returns
    -------
    SuccessRates
        In groups of few responses one of many laws that are as likely.

    Raises
    ------
    ValueError
        If there are not exactly two rewards.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> law = gt.plan.fit_success_rates(counts)
    >>> round(float(law.weights.sum()), 6), law.moments
    (1.0, 32)
    """
    (k, n, prompts), grid = cells(counts), rate_grid(1)
    table, shares = binomial_table(k, n, grid), prompts / prompts.sum()
    weights: Array = np.bincount(np.abs(grid - (k / n)[:, None]).argmin(axis=1), shares, grid.size).astype(np.float64)
    for _ in range(200):
        mixed = table @ weights
        slope = table.T @ (shares / mixed)  # D(p) of section 34
        if slope.max() <= 1.0 + GAP:
            break
        padded = np.concatenate([[-np.inf], slope, [-np.inf]])
        peaks = (slope > 1.0) & (slope >= padded[:-2]) & (slope >= padded[2:])
        before, weights = weights, _step(table, shares, mixed, weights, np.flatnonzero((weights > 0.0) | peaks))
        if np.array_equal(before, weights):
            break
    used, mixed = weights > 0.0, table @ weights
    highest = (binomial_table(k, n, rate_grid(4)).T @ (shares / mixed)).max()
    return SuccessRates(grid[used], weights[used], float(prompts @ np.log(mixed)), float(max(highest - 1.0, 0.0)), int(n.max()))


def _step(table: Array, shares: Array, mixed: Array, weights: Array, active: Integers) -> Array:
    """Return better weights: those of the quadratic approximation, or a point on the way to them."""
    relative = np.sqrt(shares)[:, None] * (table[:, active] / mixed[:, None] - 2.0)
    # With weights that sum to 1, ||S v - 2||^2 is ||(S - 2) v||^2; the row of ones lets the sum be anything, and divides by it.
    solution, _ = nnls(np.vstack([relative, np.ones(active.size)]), np.append(np.zeros(shares.size), 1.0))
    target = np.zeros_like(weights)
    target[active] = solution / solution.sum()
    change = table @ target - mixed
    rise = float(shares @ (change / mixed))
    length = 1.0
    while float(shares @ np.log1p(length * change / mixed)) < 0.3 * length * rise and length > 1e-12:
        length /= 2.0
    moved = weights + length * (target - weights)
    moved[moved < 1e-14] = 0.0
    return moved / moved.sum()


@dataclass(frozen=True)
class BetaSuccessRates:
    """A beta distribution of success rates, fitted by maximum likelihood; it cannot describe prompts of two kinds.

    Attributes
    ----------
    a, b : float
        The parameters of the beta law.
    log_likelihood : float
        Of the counts, binomial coefficients included; that of `SuccessRates` is never lower, but for its gap.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> rates = gt.plan.BetaSuccessRates(a=1.0, b=3.0, log_likelihood=0.0)
    >>> rates.mean, rates.variance
    (0.25, 0.0375)
    """

    a: float
    b: float
    log_likelihood: float

    @property
    def mean(self) -> float:
        """The mean success rate."""
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> float:
        """The variance of success rates between prompts."""
        return self.mean * (1.0 - self.mean) / (self.a + self.b + 1.0)


@typed
def fit_beta_rates(counts: RewardCounts) -> BetaSuccessRates:
    """Fit a beta distribution of success rates by maximum likelihood (beta-binomial counts).

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards; groups of any sizes.

    Returns
    -------
    BetaSuccessRates
        The sum a + b is at most 1.2 million, where all prompts have the same rate for any purpose. Counts that vary less than
        binomial ones go there. Prompts with one response each do not determine the sum, which may be anything.

    Raises
    ------
    ValueError
        If there are not exactly two rewards.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rewards = data.rewards[data.index]  # of 129 prompts, with 32 responses each
    >>> counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(129), 32), rewards.ravel())
    >>> law = gt.plan.fit_beta_rates(counts)
    >>> round(law.a / (law.a + law.b), 2)
    0.35
    """
    k, n, prompts = cells(counts)
    mean = float(prompts @ k / (prompts @ n))

    def loss(point: Array) -> tuple[float, Array]:
        share, precision = float(expit(point[0])), float(np.exp(point[1]))
        a, b = share * precision, (1.0 - share) * precision
        # d log B(a, b) = (psi(a) - psi(a + b)) da + (psi(b) - psi(a + b)) db.
        of_a, of_b, of_both = (float(prompts @ (psi(x + y) - psi(x))) for x, y in ((a, k), (b, n - k), (a + b, n)))
        slopes = a * (1.0 - share) * (of_a - of_b), a * of_a + b * of_b - (a + b) * of_both
        value = float(prompts @ (betaln(a + k, b + n - k) - betaln(a, b)))
        return -value / counts.prompts, -np.array(slopes) / counts.prompts

    starts = [(np.log(mean / (1.0 - mean)), at) for at in (-1.0, 1.0, 4.0, LARGEST_LOG_PRECISION)]
    bounds = [(-20.0, 20.0), (-8.0, LARGEST_LOG_PRECISION)]
    best = min((minimize(loss, start, method="L-BFGS-B", jac=True, bounds=bounds) for start in starts), key=lambda fit: fit.fun)
    share, precision = float(expit(best.x[0])), float(np.exp(best.x[1]))
    return BetaSuccessRates(
        share * precision, (1.0 - share) * precision, float(prompts @ log_choose(n, k)) - best.fun * counts.prompts
    )


def most_success(prompts: int, level: float = 0.95) -> float:
    """Return the upper limit of the mean success rate where no response of any prompt succeeded.

    The probability that no response of B independent prompts succeeds is (E (1-p)^n)^B. This is at most (1 - E p)^B, and equal
    if prompts are either always or never solved. So the limit 1 - (1-level)^(1/B) holds whatever the law of success rates, and
    n cannot improve it. It limits the share of groups of at most n responses with a signal, too.

    Parameters
    ----------
    prompts : int
        B.
    level : float, default 0.95

    Returns
    -------
    float

    Examples
    --------
    >>> import grpo_theory as gt
    >>> round(gt.plan.most_success(prompts=100), 3)
    0.03
    """
    return float(-np.expm1(np.log1p(-as_fraction("level", level)) / as_count("prompts", prompts)))


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
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
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
    counts: RewardCounts, function: RateFunction, chosen_for: tuple[float, ...], draws: tuple[Integers, ...], share: Array | float
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
    penalty = 2.0 / np.sqrt(prompts) * np.sqrt(chances)  # of two standard errors
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
    values, at = grid**group_size + (1.0 - grid) ** group_size, np.searchsorted(grid, law.atoms)
    table = np.vstack([binomial_table(successes, sizes, grid), np.ones(grid.size)])
    # Where the counts are those of a law to rounding, they are fitted themselves, and else what the likeliest law makes of them.
    seen = np.append(prompts / np.bincount(sizes, prompts)[sizes], 1.0)
    for fitted in (seen, table[:, at] @ law.weights) if sizes.size <= MOST_CELLS else ():
        found = [linprog(sign * values, A_eq=table, b_eq=fitted, bounds=(0.0, None)).x for sign in (1.0, -1.0)]
        ends = [float(values @ one) for one in found if one is not None]
        if len(ends) == 2:
            return min(ends), max(ends)
    return (float(values[at] @ law.weights),) * 2


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
    for side, values, (least, most) in ((0, terms.below, terms.ends_below), (1, terms.above, terms.ends_above)):
        values, weights = np.broadcast_arrays(values, terms.prompts)
        size, span = weights.sum(axis=-1), most - least
        scaled = np.clip((values - least) / (span or 1.0), 0.0, 1.0)
        mean = (weights * scaled).sum(axis=-1) / size
        spread = mean * (1.0 - mean)
        variance = ((weights * (scaled - mean[..., None]) ** 2).sum(axis=-1) + UNSEEN * spread) / (size - 1.0 + UNSEEN)
        worth = np.where(spread > ROUNDING, size * spread / np.where(spread > ROUNDING, variance, 1.0), size)
        effective = np.minimum(worth, np.maximum(terms.responses, size)) * (ndtri(tail) / stdtrit(size - 1, tail)) ** 2
        ends.append(least + span * binomial_limits(mean * effective, (1.0 - mean) * effective, level)[side])
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
    rates = as_real_array("rates", rates, 1)
    check_within("rates", rates, 0.0, 1.0)
    law = fit_success_rates(counts) if law is None else law
    steps = [RateFunction("plain", np.ones_like, (1.0,), 0.0, float(rate)) for rate in rates]
    return stacked([mean_interval(average_terms(counts, step), float(law.cdf(step.high)), level) for step in steps])


@dataclass(frozen=True, eq=False)
class UniformShares:
    """The share of uniform groups at several group sizes.

    Attributes
    ----------
    group_sizes : ndarray of int64, shape (S,)
    interval : Interval
        Shape (S,): the share of groups whose rewards are all equal. The standard error is NaN where it is not measured, and the
        estimate where the log leaves it open. The limits hold whatever the law of success rates.
    measured : ndarray, shape (S,)
        The share of the prompts with so many responses. Where it is 1, the estimate is measured and without bias.
    identified : ndarray, shape (S, 2)
        The least and the greatest share by all laws of success rates that are as likely as the likeliest. Where counts vary
        less than those of a law this is one law, and only the limits say how unsure it is. NaN with more than two rewards,
        and one law's share where there are more than 20 different counts.
    responses : ndarray of int64, shape (S,)
        How many responses a prompt tell the share to within 0.05, whatever the law, were there no sampling error.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> prompts = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    >>> counts = gt.RewardCounts.from_rewards(prompts, [1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    >>> shares = gt.plan.estimate_uniform_shares(counts, [2, 4, 64])
    >>> shares.interval.estimate.round(2).tolist(), shares.measured.tolist(), shares.responses.tolist()
    ([0.61, 0.33, nan], [1.0, 1.0, 0.0], [2, 2, 12])
    """

    group_sizes: Integers
    interval: Interval
    measured: Array
    identified: Array
    responses: Integers


@typed
def estimate_uniform_shares(
    counts: RewardCounts, group_sizes: ArrayLike, level: float = 0.95, *, law: SuccessRates | None = None
) -> UniformShares:
    """Estimate the share of groups with no signal (all rewards equal) at each group size.

    A prompt with n >= G responses measures its own share without bias: the probability that G of them, drawn without
    replacement, have one reward. For G > n the share is the mean of p^G + (1-p)^G over the law of success rates p, of which the
    log shows n moments. Polynomials of degree n above and below give limits that hold whatever the law (docs/derivations.md,
    section 34). With more rewards it is E[X^(G-1)], with X the probability of a response's own reward.

    Larger groups are more seldom uniform. So limits of other sizes that are asked for hold, too, and the narrowest around the
    estimate are given. Those of groups of 64 may be narrower than those of 128, for example, where 64 responses were logged.

    There is an estimate of an unmeasured share only where so many moments leave open at most 0.05 of it, whatever the law. It
    is the middle of what they leave open. Pairs, for example, tell the share of groups of 4, and not that of groups of 8.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts; any number of rewards, groups of any sizes. The prompts are draws from all prompts, and a prompt's
        number of responses says nothing about it that matters here.
    group_sizes : array_like of int, shape (S,)
        Each at least 1.
    level : float, default 0.95
        Of each limit pair by itself, not of all together, and before those of other sizes make it narrower.
    law : SuccessRates, optional
        What `fit_success_rates(counts)` returns, if it is at hand.

    Returns
    -------
    UniformShares

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
    >>> shares = gt.plan.estimate_uniform_shares(counts, [2, 8])
    >>> shares.interval.estimate.round(2).tolist()
    [0.71, 0.31]
    """
    level = check_level(level)
    sizes = np.array([as_count("group_sizes", size) for size in np.atleast_1d(group_sizes).tolist()])
    if counts.sizes.max() < 2:
        raise ValueError("counts must have a prompt with two responses: one per prompt says nothing about uniform groups")
    intervals, ends, needed = [], np.full((sizes.size, 2), np.nan), np.vectorize(responses_to_tell)(sizes, counts.values.size)
    for place, size in enumerate(sizes.tolist()):
        terms = share_terms(counts, size)
        low, high = float(terms.below.mean()), float(terms.above.mean())
        if terms.measured:
            ends[place] = low
        elif counts.binary:
            law = fit_success_rates(counts) if law is None else law
            low, high = ends[place] = likeliest_range(counts, size, law)
        told = np.median(counts.sizes) >= needed[place]
        intervals.append(mean_interval(terms, (low + high) / 2.0 if told else np.nan, level))
    found, smaller = stacked(intervals), sizes <= sizes[:, None]
    high = np.fmax(np.where(smaller, found.high, 1.0).min(axis=1), found.estimate)
    low = np.fmin(np.where(smaller.T, found.low, 0.0).max(axis=1), np.fmin(found.estimate, high))
    interval = Interval(found.estimate, found.standard_error, low, high, level)
    measured = np.array([(counts.sizes >= size).mean() for size in sizes])
    return UniformShares(sizes, interval, measured, np.clip(ends, 0.0, 1.0), needed)


def responses_to_tell(group_size: int, levels: int = 2, tolerance: float = OPEN) -> int:
    """Return the least n of which the moments leave open at most the tolerance of the share of uniform groups of a size.

    With two rewards n moments leave open at most 4 P(|S| > n, S even) (section 34, theorem). S is a walk of 2 G steps of
    +-1/2. With more it is 2 P(|S| > n - 1), S of 2 (G - 1) steps, by the chance of a response's own reward.

    Examples
    --------
    >>> from grpo_theory.plan.success_rates import responses_to_tell
    >>> [responses_to_tell(size) for size in (2, 4, 8, 16, 128)]
    [2, 2, 4, 6, 18]
    """
    half = group_size if levels == 2 else group_size - 1
    k = np.arange(half + 1)
    chances = np.exp(log_choose(2 * half, half + k) - 2 * half * np.log(2.0))
    both = 8.0 * chances * (k % 2 == 0) if levels == 2 else 4.0 * chances
    beyond = np.append(np.cumsum(both[::-1])[::-1], 0.0)  # of k or more
    n = int(np.flatnonzero(beyond[1:] <= tolerance)[0])
    return min(max(n if levels == 2 else n + 1, 2), max(group_size, 2))
