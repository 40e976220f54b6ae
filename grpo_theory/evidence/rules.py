"""Evidence, the limits of its error, and the rules that turn it into a verdict, one a kind of claim."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, stdtrit

from grpo_theory.validation import Array, as_count, as_numbers

VERY_MANY = 10**7
"""Trials of which the limits of a share are those of a normal law."""
SKEWNESS = sqrt(8.0)
"""The skewness of a squared normal: of a gap, a loss or a squared error in one direction, the most skewed of them."""


@dataclass(frozen=True)
class Evidence:
    """An estimate against a prediction.

    The estimate is taken for a mean over independent replications, or a difference or smooth function of such means.

    Attributes
    ----------
    estimate : float
    prediction : float
        What the claim says the estimate is (identity, equality, rate), is at most (upper bound, ordering), or 0 (law).
    standard_error : float, default 0
        0 for an exact computation.
    margin : float, default 0
        How near is near enough: relative for an equality unless `absolute`, absolute for a rate and a law; unused otherwise.
    replications : int, default 0
        0 for an exact computation; of a difference of two means, the smaller number.
    comparisons : int, default 1
        The number of estimates of which this is the extreme one; the level is divided among them.
    skewness : float, default sqrt(8)
        Of a single replication, at most, in either direction: limits allow for it. The default is that of a squared normal.
    absolute : bool, default False
        Whether the margin of an equality is absolute too, as it must be where the prediction may be 0.

    Examples
    --------
    >>> from grpo_theory.evidence import Evidence
    >>> evidence = Evidence(estimate=0.52, prediction=0.5, standard_error=0.01, replications=1000)
    >>> low, high = evidence.interval(level=0.05)
    >>> round(low, 3), round(high, 3), round(evidence.half_width(0.05, replications=4000), 3)
    (0.499, 0.541, 0.01)
    """

    estimate: float
    prediction: float
    standard_error: float = 0.0
    margin: float = 0.0
    replications: int = 0
    comparisons: int = 1
    skewness: float = SKEWNESS
    absolute: bool = False

    def __post_init__(self) -> None:
        numbers = (self.estimate, self.prediction, self.standard_error, self.margin)
        if not np.isfinite(numbers).all():
            raise ValueError(f"evidence must be finite, got (estimate, prediction, standard error, margin) = {numbers}")
        if self.standard_error < 0.0 or self.margin < 0.0:
            raise ValueError(f"standard_error and margin must not be negative, got {numbers[2:]}")
        if not 0.0 <= self.skewness < np.inf:
            raise ValueError(f"skewness must be a number of at least 0, got {self.skewness}")
        as_count("comparisons", self.comparisons)
        if as_count("replications", self.replications, 0) == 0 and self.standard_error > 0.0:
            raise ValueError(f"replications must be at least 1 where standard_error is above 0, got {self.standard_error:g}")

    def interval(self, level: float) -> tuple[float, float]:
        """Return limits that miss the truth with probability at most `level`."""
        half = self.half_width(level, self.replications)
        return self.estimate - half, self.estimate + half

    def half_width(self, level: float, replications: int) -> float:
        """Return the half-width that the limits would have with another number of replications.

        The half-width uses Student's quantile t, because the standard error is estimated. It adds the amount by which the
        quantile of the studentised mean of R gamma variables of this skewness is larger. The amount is expanded to second order
        in 1/sqrt(R) (docs/derivations.md, section 18).
        """
        if self.standard_error == 0.0:
            return 0.0
        if replications < 2:
            return float("inf")
        t = -float(stdtrit(replications - 1, level / 2.0))
        # Cornish and Fisher's terms in the skewness g, with the gamma's excess kurtosis of 3/2 times its square:
        # t + g (1 + 2 t^2) / (6 sqrt(R)) + 11 g^2 t (t^2 + 2) / (72 R)  (docs/derivations.md, section 18).
        first = self.skewness * (1.0 + 2.0 * t**2) / (6.0 * sqrt(replications))
        second = self.skewness**2 * 11.0 * t * (t**2 + 2.0) / (72.0 * replications)
        return (t + first + second) * self.standard_error * sqrt(self.replications / replications)


@dataclass(frozen=True)
class Share(Evidence):
    """A share of independent trials, such as a coverage: its limits are Clopper and Pearson's, exact for any number of trials.

    Examples
    --------
    >>> from grpo_theory.evidence import Share
    >>> share = Share(estimate=0.94, prediction=0.95, replications=1000)
    >>> tuple(round(limit, 3) for limit in share.interval(0.05)), round(share.half_width(0.05, 4000), 4)
    ((0.923, 0.954), 0.0078)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0.0 <= self.estimate <= 1.0 and self.replications):
            raise ValueError(f"a share must lie in [0, 1] and have replications, got {self.estimate:g} of {self.replications}")

    def interval(self, level: float) -> tuple[float, float]:
        """Return limits that miss the truth with probability at most `level`."""
        return self._limits(round(self.estimate * self.replications), self.replications, level)

    @staticmethod
    def _limits(hits: float, trials: int, level: float) -> tuple[float, float]:
        # Clopper and Pearson (1934): I_low(hits, n - hits + 1) = level/2 and I_high(hits + 1, n - hits) = 1 - level/2.
        low = float(betaincinv(hits, trials - hits + 1, level / 2.0)) if hits > 0 else 0.0
        high = float(betaincinv(hits + 1, trials - hits, 1.0 - level / 2.0)) if hits < trials else 1.0
        return low, high

    def half_width(self, level: float, replications: int) -> float:
        """Return the distance to the farther limit with so many trials, which of very many falls with their root."""
        trials = min(replications, VERY_MANY)
        low, high = self._limits(self.estimate * trials, trials, level)
        return max(high - self.estimate, self.estimate - low) * sqrt(trials / replications)


def as_side(stated: str, side: Any) -> tuple[Array, float, int]:
    """Return values, standard error and number of draws of a side of a statement; without draws it is exact."""
    if not isinstance(side, tuple):
        return as_numbers("side", side), 0.0, 0
    if len(side) != 3:
        raise ValueError(f"{stated}: a simulated side is (estimate, standard error, number of draws), got {side!r}")
    return as_numbers("estimate", side[0]), float(side[1]), int(side[2])


CONFIRMED, REFUTED, INCONCLUSIVE, NO_POWER = "confirmed", "refuted", "inconclusive", "no power"
ESTIMATE = "estimate only"
"""The verdict where limits are so wide that not even the best outcome could have been confirmed."""
REPRODUCED, NOT_REPRODUCED = "reproduced here", "not reproduced here"
"""What a verdict is called where the statement is a paper's measurement on its own model: that one stands, whatever ours does."""
REFUTATIONS = (REFUTED, NOT_REPRODUCED)
"""The verdicts that need no negative control."""
IDENTITY_TOLERANCE = 1e-10
MOST = 10**18
"""The largest number of replications that is ever asked for."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with the interval that it rests on.

    Attributes
    ----------
    verdict : {"confirmed", "refuted", "inconclusive", "estimate only"}
    low, high : float
        The interval of the estimate.
    needed : int
        Replications that would do if the estimate stayed what it is, or of an estimate only, that could do at best; else 0.

    Examples
    --------
    >>> from grpo_theory.evidence import Judgement
    >>> Judgement("inconclusive", low=-0.01, high=0.03, needed=4000).needed
    4000
    """

    verdict: str
    low: float
    high: float
    needed: int = 0


def enough(kind: str, evidence: Evidence, level: float, half_width: float) -> int:
    """Return the number of replications from which on limits have at most a half-width; 0 where no number makes a difference."""
    if kind == "law":
        # h = sqrt(log(2 / level) / (2 n)), solved for n (Massart 1990).
        return ceil(min(log(2.0 / level) / (2.0 * half_width**2), MOST)) if half_width > 0.0 else MOST
    if half_width <= 0.0 or evidence.replications == 0:
        return 0
    least = max(evidence.replications, 2)
    return least + bisect_left(range(least, MOST), True, key=lambda number: evidence.half_width(level, number) <= half_width)


def rounding(prediction: ArrayLike) -> Any:
    """Return by how much two sides may differ and still agree: 1e-10, relative to the larger of 1 and the prediction."""
    return IDENTITY_TOLERANCE * np.maximum(1.0, np.abs(prediction))


def room(kind: str, evidence: Evidence) -> float:
    """Return how far the upper limit may be above the estimate at most, for the best of outcomes to be confirmed.

    The best estimate of an equality or rate is the prediction. That of a law, or of a bound on what is not negative, is 0. A
    difference may be of any size, so an order can always be decided.

    Examples
    --------
    >>> from grpo_theory.evidence import Evidence
    >>> from grpo_theory.evidence.rules import room
    >>> room("equality", Evidence(0.52, 0.5, 0.01, margin=0.02, replications=100))
    0.01
    """
    if kind == "equality":
        return evidence.margin if evidence.absolute else evidence.margin * abs(evidence.prediction)
    if kind in ("rate", "law"):
        return evidence.margin
    return evidence.prediction if kind == "upper bound" and evidence.prediction > 0.0 else inf


def rule(kind: str, evidence: Evidence, level: float) -> Judgement:
    """Judge by the interval at a level, each kind of statement by a rule of its own.

    An identity is confirmed if both sides agree to 1e-10, relative to the larger of 1 and the prediction. It is refuted if not.

    An equality is confirmed if the interval lies within the margin around the prediction, usually a share of it. It is refuted if
    the interval lies outside. A rate is judged in the same way, by the interval of the log-log slope and the exponent.

    An upper bound is confirmed if the upper limit is at most the bound, and refuted if the lower limit is above it.

    An ordering is confirmed if the interval of the paired difference lies below the prediction, and refuted if it lies above. An
    exact difference is a tie within rounding of the prediction, and a tie refutes an order.

    A law is judged by the Dvoretzky-Kiefer-Wolfowitz band around the empirical distribution function. The estimate is the largest
    distance between that function and the law. It is confirmed if the upper limit is below the margin, and refuted if the lower
    one is above.
    """
    low, high = evidence.interval(level)
    slack, away = float(rounding(evidence.prediction)), abs(evidence.estimate - evidence.prediction)
    half_width = away  # at which the interval would have decided
    if kind == "identity":
        confirmed = bool(away <= slack)
        refuted, half_width = not confirmed, 0.0
    elif kind == "upper bound":
        bound = evidence.prediction + slack
        confirmed, refuted = high <= bound, low > bound
    elif kind == "ordering":
        confirmed = high < evidence.prediction - slack
        refuted = low > evidence.prediction + slack or (evidence.replications == 0 and not confirmed)
    elif kind == "law":
        # Massart (1990): P(sup |F_n - F| > h) <= 2 exp(-2 n h^2), so h = sqrt(log(2/level)/(2 n)).  Exact evidence has no band.
        half = sqrt(log(2.0 / level) / (2.0 * evidence.replications)) if evidence.replications else 0.0
        low, high = max(0.0, evidence.estimate - half), evidence.estimate + half
        confirmed, refuted, half_width = high < evidence.margin, low > evidence.margin, abs(evidence.margin - evidence.estimate)
    else:
        # Exact evidence has an interval without width, which rounding alone would put beside the margin of an equality.
        allowance = room(kind, evidence) + (slack if kind == "equality" else 0.0)
        least, most = evidence.prediction - allowance, evidence.prediction + allowance
        confirmed, refuted = least <= low and high <= most, high < least or low > most
        # Inside: |estimate - prediction| + h <= allowance.  Outside: |estimate - prediction| - h > allowance.  Either is so where
        # the half-width h is below this.
        half_width = abs(allowance - away)
    verdict = REFUTED if refuted else CONFIRMED if confirmed else INCONCLUSIVE
    return Judgement(verdict, low, high, enough(kind, evidence, level, half_width) if verdict == INCONCLUSIVE else 0)


KINDS: dict[str, Callable[[Evidence, float], Judgement]] = {
    kind: partial(rule, kind) for kind in ("identity", "equality", "upper bound", "rate", "law", "ordering")
}
