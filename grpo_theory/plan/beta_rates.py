"""The beta law of success rates that makes counts likeliest."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import minimize
from scipy.special import betainc, betaincinv, betaln, expit

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.success_rates import Cells, as_shares, check_binary
from grpo_theory.validation import Array, as_numbers, typed

NODES = 64
"""Points of the quadrature by which a beta law averages functions."""
LARGEST_LOG_PRECISION = 14.0
"""Beyond it, a precision of a million, all prompts have one success rate for any purpose."""


@dataclass(frozen=True, eq=False)
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
    >>> round(float(rates.cdf(0.25)), 3), round(float(rates.quantile(0.5)), 3), round(rates.average(lambda p: p), 6)
    (0.578, 0.206, 0.25)
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
        return np.asarray(betaincinv(self.a, self.b, as_shares(share)))

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over prompts of a function of the success rate; exact for polynomials of degree up to 127."""
        nodes, weights = self._quadrature
        return float(weights @ function(nodes))

    @cached_property
    def _quadrature(self) -> tuple[Array, Array]:
        return beta_quadrature(self.a, self.b, NODES)


def beta_quadrature(a: float, b: float, nodes: int) -> tuple[Array, Array]:
    """Return points in [0, 1] and weights, shape (nodes,) each, that average polynomials of degree below 2 nodes over beta(a, b).

    They are the eigenvalues of the Jacobi polynomials' recurrence, and the squares of its eigenvectors' first entries (Golub
    and Welsch 1969). No integral is computed, because it would overflow for precise laws.
    """
    n, precision = np.arange(1.0, nodes), a + b
    even = precision + 2.0 * n - 2.0
    centres = np.append(0.5 + 0.5 * (a - b) / precision, 0.5 + 0.5 * (a - b) * (precision - 2.0) / (even * (even + 2.0)))
    m = n[1:]
    later = m * (m + a - 1.0) * (m + b - 1.0) * (m + precision - 2.0) / (even[1:] - 1.0)
    squares = np.append(a * b, later) / (even**2 * (even + 1.0))
    points, vectors = eigh_tridiagonal(centres, np.sqrt(squares))
    return np.clip(points, 0.0, 1.0), vectors[0] ** 2


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
    cells = Cells.of(counts)
    parts = cells.successes, cells.sizes, cells.prompts
    a, b, log_likelihood = _likeliest(*(part.astype(np.float64).tobytes() for part in parts))
    return BetaSuccessRates(a, b, log_likelihood + cells.log_coefficients)


@lru_cache(maxsize=16)
def _likeliest(successes: bytes, sizes: bytes, prompts_of_each: bytes) -> tuple[float, float, float]:
    """Return a, b and the log likelihood without coefficients; kept, as the same rewards may come with other scores."""
    k, n, prompts = (np.frombuffer(part) for part in (successes, sizes, prompts_of_each))
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
    return share * precision, (1.0 - share) * precision, -best.fun * float(prompts.sum())
