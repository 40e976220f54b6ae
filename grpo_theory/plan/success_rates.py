"""How success rates are distributed over prompts, with the sampling noise of small groups removed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import betainc, betaincinv, betaln, expit

from grpo_theory.arrays import Array
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.average import average_terms, clipped, mean_interval, stacked
from grpo_theory.plan.binomial import beta_quadrature
from grpo_theory.plan.brackets import RateFunction
from grpo_theory.plan.mixing import Cells, check_binary, check_pairs, likeliest_law
from grpo_theory.samples import RewardCounts
from grpo_theory.validation import as_numbers, as_real_array, check_within, typed

NODES = 64
"""Points of the quadrature by which a beta law averages functions."""
LARGEST_LOG_PRECISION = 14.0
"""Beyond it, a precision of a million, all prompts have one success rate for any purpose."""


@dataclass(frozen=True, eq=False)
class SuccessRates:
    """A law of success rates on finitely many atoms, which makes the observed counts likeliest.

    Groups of n responses identify the first n moments of the law and nothing else: averages of polynomials of degree at most n
    are estimated without bias, and all else, where the atoms lie first, rests on the shape that maximum likelihood chooses.
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
        at = np.searchsorted(np.cumsum(self.weights), _shares(share) * (1.0 - 1e-12))
        return self.atoms[np.minimum(at, self.atoms.size - 1)]

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over prompts of a function of the success rate, which takes and returns an array."""
        return float(self.weights @ function(self.atoms))


@dataclass(frozen=True, eq=False)
class BetaSuccessRates:
    """A beta law of success rates, by maximum likelihood: two numbers, smooth, and wrong where prompts are of two kinds.

    Attributes
    ----------
    a, b : float
        The parameters of the beta law.
    log_likelihood : float
        Of the counts, binomial coefficients included; that of `SuccessRates` is never lower, but for its gap.
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

    def cdf(self, rate: ArrayLike) -> Array:
        """Return the share of prompts whose success rate is at most `rate`, of its shape."""
        return np.asarray(betainc(self.a, self.b, np.clip(as_numbers("rate", rate), 0.0, 1.0)))

    def quantile(self, share: ArrayLike) -> Array:
        """Return the success rate that a `share` of the prompts do not exceed, of its shape."""
        return np.asarray(betaincinv(self.a, self.b, _shares(share)))

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over prompts of a function of the success rate; exact for polynomials of degree up to 127."""
        nodes, weights = self._quadrature
        return float(weights @ function(nodes))

    @cached_property
    def _quadrature(self) -> tuple[Array, Array]:
        return beta_quadrature(self.a, self.b, NODES)


def _shares(share: ArrayLike) -> Array:
    share = as_numbers("share", share)
    check_within("share", share, 0.0, 1.0)
    return share


@typed
def fit_success_rates(counts: RewardCounts) -> SuccessRates:
    """Return the law of success rates that makes the counts likeliest, among all laws on [0, 1].

    Kiefer and Wolfowitz's nonparametric maximum likelihood: given its success rate a prompt's successes are binomial. The
    problem is convex; a step minimises the quadratic approximation over all weights of the present atoms and of the highest
    peaks of the likelihood's slope (Wang 2007, constrained Newton), by non-negative least squares. The slope certifies the
    result: the law is best when its slope nowhere exceeds 1, and `gap` is by how much it does on a grid four times as fine.

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
    """
    check_binary(counts)
    cells = Cells.of(counts)
    law = likeliest_law(cells)
    return SuccessRates(law.atoms, law.weights, law.log_likelihood, law.gap, int(cells.sizes.max()))


@typed
def fit_beta_rates(counts: RewardCounts) -> BetaSuccessRates:
    """Return the beta law of success rates that makes the counts likeliest (beta-binomial counts).

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards; groups of any sizes.

    Returns
    -------
    BetaSuccessRates
        With a + b at most 1.2 million, where all prompts have the same rate for any purpose: counts that vary less than binomial
        ones, and prompts with one response each, go there, or anywhere.

    Raises
    ------
    ValueError
        If there are not exactly two rewards.
    """
    check_binary(counts)
    cells = Cells.of(counts)
    k, n, prompts = cells.successes, cells.sizes, cells.prompts
    mean = float(prompts @ k / (prompts @ n))

    def loss(parameters: Array) -> float:
        share, precision = expit(parameters[0]), np.exp(parameters[1])
        a, b = share * precision, (1.0 - share) * precision
        return -float(prompts @ (betaln(a + k, b + n - k) - betaln(a, b))) / float(prompts.sum())

    edge = LARGEST_LOG_PRECISION
    starts = [(np.log(mean / (1.0 - mean)), at) for at in (-1.0, 1.0, 4.0, edge)]
    fits = [minimize(loss, start, method="L-BFGS-B", bounds=[(-20.0, 20.0), (-8.0, edge)]) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    share, precision = float(expit(best.x[0])), float(np.exp(best.x[1]))
    return BetaSuccessRates(
        share * precision, (1.0 - share) * precision, -best.fun * float(prompts.sum()) + cells.log_coefficients
    )


@typed
def bound_success_rates(
    counts: RewardCounts, rates: ArrayLike, level: float = 0.95, *, law: SuccessRates | None = None
) -> Interval:
    """Return intervals of the share of prompts whose success rate is at most `rates`.

    Through groups of n responses only the first n moments of the law of success rates are seen. The limits are those of
    polynomials of degree n above and below the step: they hold whatever the law, and stay apart however many prompts there are.
    The estimate is that of the likeliest law (docs/derivations.md, section 34).

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
    """
    level = check_level(level)
    check_pairs(counts)
    rates = as_real_array("rates", rates, 1)
    check_within("rates", rates, 0.0, 1.0)
    law = fit_success_rates(counts) if law is None else law
    steps = [RateFunction(np.ones_like, "plain", (1.0,), 0.0, float(rate)) for rate in rates]
    shares = [mean_interval(average_terms(counts, step), float(law.cdf(step.high)), level) for step in steps]
    return clipped(stacked(shares))
