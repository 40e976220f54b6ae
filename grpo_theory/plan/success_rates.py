"""How success rates are distributed over prompts: the likeliest law of all, and the likeliest beta law."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize, nnls
from scipy.special import betaln, expit, gammaln, xlog1py, xlogy

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.validation import Array, Integers, as_count, as_fraction, as_numbers, check_within, typed

GRID_ANGLES = 1024
"""Steps of the grid from 0 to 1, equal in the angle whose squared sine is the rate: equal in standard errors of a rate."""
GAP = 1e-7
"""By so much a prompt's mean log-likelihood may fall short of the highest."""
MOST_STEPS = 200
LARGEST_LOG_PRECISION = 14.0
"""Beyond it, a precision of a million, all prompts have one success rate for any purpose."""


@lru_cache(maxsize=8)
def rate_grid(fineness: int, angles: int = GRID_ANGLES) -> Array:
    """Return success rates from 0 to 1, ascending: steps of equal angle, times the fineness, and the hundredths."""
    steps = np.linspace(0.0, np.pi / 2.0, fineness * angles + 1)
    grid = np.unique(np.concatenate([np.sin(steps) ** 2, np.linspace(0.0, 1.0, 101)]))
    grid.flags.writeable = False
    return grid


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
        below = np.searchsorted(self.atoms, as_numbers("rate", rate), side="right")
        return np.append(0.0, np.minimum(np.cumsum(self.weights), 1.0))[below]

    def quantile(self, share: ArrayLike) -> Array:
        """Return the least success rate that at least a `share` of the prompts do not exceed, of its shape."""
        shares = as_numbers("share", share)
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
    check_binary(counts)
    (k, n, prompts), grid = cells(counts), rate_grid(1)
    table, shares = binomial_table(k, n, grid), prompts / prompts.sum()
    weights: Array = np.bincount(np.abs(grid - (k / n)[:, None]).argmin(axis=1), shares, grid.size).astype(np.float64)
    for _ in range(MOST_STEPS):
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
    check_binary(counts)
    k, n, prompts = cells(counts)
    mean = float(prompts @ k / (prompts @ n))

    def parts(point: Array) -> tuple[float, float]:
        share, precision = float(expit(point[0])), float(np.exp(point[1]))
        return share * precision, (1.0 - share) * precision

    def loss(point: Array) -> float:
        a, b = parts(point)
        return -float(prompts @ (betaln(a + k, b + n - k) - betaln(a, b))) / counts.prompts

    starts = [(np.log(mean / (1.0 - mean)), at) for at in (-1.0, 1.0, 4.0, LARGEST_LOG_PRECISION)]
    bounds = [(-20.0, 20.0), (-8.0, LARGEST_LOG_PRECISION)]
    best = min((minimize(loss, start, method="L-BFGS-B", bounds=bounds) for start in starts), key=lambda fit: fit.fun)
    return BetaSuccessRates(*parts(best.x), float(prompts @ log_choose(n, k)) - best.fun * counts.prompts)


def check_binary(counts: RewardCounts) -> None:
    """Raise unless there are exactly two rewards."""
    if not counts.binary:
        raise ValueError(
            "counts must be of two different rewards, failure and success, for a law of success rates, got "
            f"{counts.values.size}: count a reward above a threshold as success"
        )


def check_prompts(counts: RewardCounts) -> None:
    """Raise unless there are two prompts: one does not tell how prompts differ."""
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")


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
