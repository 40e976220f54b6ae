"""How success rates are distributed over prompts, with the sampling noise of small groups removed: the likeliest law."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls
from scipy.special import xlogy

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.brackets import binomial_table, log_choose, rate_grid
from grpo_theory.validation import Array, Flags, Integers, as_numbers, check_within, typed

GAP = 1e-7
"""By so much a prompt's mean log-likelihood may fall short of the highest."""
MOST_STEPS = 200


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct pairs of successes and size among prompts, and how many prompts have each.

    Attributes
    ----------
    successes, sizes : ndarray of int64, shape (C,)
    prompts : ndarray, shape (C,)
        Need not be whole: a prompt may be shared out among cells.
    """

    successes: Integers
    sizes: Integers
    prompts: Array

    @classmethod
    def of(cls, counts: RewardCounts) -> "Cells":
        """Return the cells of binary rewards."""
        return cls.gather(counts.successes, counts.sizes, np.ones(counts.prompts))

    @classmethod
    def gather(cls, successes: Integers, sizes: Integers, prompts: Array) -> "Cells":
        """Return cells with equal ones put together."""
        width = int(sizes.max()) + 1
        keys, cell = np.unique(sizes * width + successes, return_inverse=True)
        return cls(keys % width, keys // width, np.asarray(np.bincount(cell, weights=prompts), dtype=np.float64))

    @property
    def log_coefficients(self) -> float:
        """The sum over prompts of the logarithms of the binomial coefficients."""
        return float(self.prompts @ log_choose(self.sizes, self.successes))


@dataclass(frozen=True, eq=False)
class SuccessRates:
    """The maximum-likelihood distribution of success rates over prompts, on finitely many atoms.

    Groups of n responses identify only the first n moments of the law. Averages of polynomials of degree at most n are
    estimated without bias. All else, above all where the atoms lie, rests on the shape that maximum likelihood chooses.
    `bound_success_rates` says what the counts leave open.

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
        at = np.searchsorted(np.cumsum(self.weights), as_shares(share) * (1.0 - 1e-12))
        return self.atoms[np.minimum(at, self.atoms.size - 1)]

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over prompts of a function of the success rate, which takes and returns an array."""
        return float(self.weights @ function(self.atoms))


def as_shares(share: ArrayLike) -> Array:
    """Return shares of prompts, in [0, 1]."""
    share = as_numbers("share", share)
    check_within("share", share, 0.0, 1.0)
    return share


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
    return likeliest_law(Cells.of(counts))


def likeliest_law(cells: Cells) -> SuccessRates:
    """Return the likeliest law of the success rates behind cells of counts."""
    grid = rate_grid(1)
    table = _scaled_table(cells, grid)
    shares = cells.prompts / cells.prompts.sum()
    start = np.abs(grid - (cells.successes / cells.sizes)[:, None]).argmin(axis=1)
    weights = np.zeros(grid.size)
    np.add.at(weights, start, shares)
    for _ in range(MOST_STEPS):
        mixed = table @ weights
        slope = table.T @ (shares / mixed)
        if slope.max() <= 1.0 + GAP:
            break
        active = np.flatnonzero((weights > 0.0) | _peaks(slope))
        before, weights = weights, _step(table, shares, mixed, weights, active)
        if np.array_equal(before, weights):
            break
    used = weights > 0.0
    mixed = table @ weights
    highest = (_scaled_table(cells, rate_grid(4)).T @ (shares / mixed)).max()
    likelihood = float(cells.prompts @ (np.log(mixed) + _largest_logs(cells))) + cells.log_coefficients
    return SuccessRates(grid[used], weights[used], likelihood, float(max(highest - 1.0, 0.0)), int(cells.sizes.max()))


def _largest_logs(cells: Cells) -> Array:
    """Return the logarithm of p^k (1-p)^(n-k) at its maximum, shape (C,)."""
    k, n = cells.successes, cells.sizes
    return np.asarray(xlogy(k, k / n) + xlogy(n - k, (n - k) / n))


def _scaled_table(cells: Cells, grid: Array) -> Array:
    """Return the cells' likelihoods at each rate relative to their largest, shape (C, M)."""
    return binomial_table(cells.successes, cells.sizes, grid, _largest_logs(cells))


def _peaks(slope: Array) -> Flags:
    """Return where the slope is above 1 and no less than at its neighbours."""
    padded = np.concatenate([[-np.inf], slope, [-np.inf]])
    return (slope > 1.0) & (slope >= padded[:-2]) & (slope >= padded[2:])


def _step(table: Array, shares: Array, mixed: Array, weights: Array, active: Integers) -> Array:
    """Return better weights: those of the quadratic approximation, or a point on the way to them."""
    root = np.sqrt(shares)
    relative = root[:, None] * (table[:, active] / mixed[:, None] - 2.0)
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


def check_binary(counts: RewardCounts) -> None:
    """Raise unless there are exactly two rewards."""
    if not counts.binary:
        distinct = counts.values.size
        seen = f"all are {counts.values[0]:g}" if distinct == 1 else f"there are {distinct} of them"
        raise ValueError(
            f"counts must be of two rewards, failure and success, for a law of success rates; {seen}: "
            "count a reward above a threshold as success"
        )


def check_pairs(counts: RewardCounts) -> None:
    """Raise unless there are two rewards and at least two prompts."""
    check_binary(counts)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
