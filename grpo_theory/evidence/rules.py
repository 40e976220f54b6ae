"""The rules that turn evidence into a verdict, one a kind of claim."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, log, sqrt

from grpo_theory.evidence.estimate import Evidence

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


def _judge(evidence: Evidence, level: float, confirmed: bool, refuted: bool, half_width: float) -> Judgement:
    """Judge by the interval; `half_width` is that at which the interval would have decided."""
    low, high = evidence.interval(level)
    if refuted:
        return Judgement(REFUTED, low, high)
    if confirmed:
        return Judgement(CONFIRMED, low, high)
    if half_width <= 0.0 or evidence.replications == 0:
        return Judgement(INCONCLUSIVE, low, high)
    return Judgement(INCONCLUSIVE, low, high, enough(evidence, level, half_width))


def enough(evidence: Evidence, level: float, half_width: float) -> int:
    """Return the number of replications from which on limits have at most a half-width."""
    least = max(evidence.replications, 2)
    return least + bisect_left(range(least, MOST), True, key=lambda number: evidence.half_width(level, number) <= half_width)


def identity(evidence: Evidence, level: float) -> Judgement:
    """Confirm if both sides agree to 1e-10, relative to the larger of 1 and the prediction; refute if not."""
    gap = abs(evidence.estimate - evidence.prediction)
    agree = gap <= IDENTITY_TOLERANCE * max(1.0, abs(evidence.prediction))
    return _judge(evidence, level, agree, not agree, 0.0)


def equality(evidence: Evidence, level: float) -> Judgement:
    """Confirm if the interval lies within the margin around the prediction, usually a share of it; refute if it lies outside."""
    low, high = evidence.interval(level)
    # Exact evidence has an interval without width, which rounding alone would put beside the margin.
    slack = IDENTITY_TOLERANCE * max(1.0, abs(evidence.prediction))
    allowance = room("equality", evidence) + slack
    least, most = evidence.prediction - allowance, evidence.prediction + allowance
    half_width = abs(allowance - abs(evidence.estimate - evidence.prediction))
    return _judge(evidence, level, least <= low and high <= most, high < least or low > most, half_width)


def upper_bound(evidence: Evidence, level: float) -> Judgement:
    """Confirm if the upper limit is at most the bound; refute if the lower limit is above it."""
    low, high = evidence.interval(level)
    slack = IDENTITY_TOLERANCE * max(1.0, abs(evidence.prediction))
    bound = evidence.prediction + slack
    return _judge(evidence, level, high <= bound, low > bound, abs(evidence.prediction - evidence.estimate))


def rate(evidence: Evidence, level: float) -> Judgement:
    """Confirm if the interval of the log-log slope lies within the margin around the exponent; refute if outside."""
    low, high = evidence.interval(level)
    least, most = evidence.prediction - evidence.margin, evidence.prediction + evidence.margin
    half_width = abs(evidence.margin - abs(evidence.estimate - evidence.prediction))
    return _judge(evidence, level, least <= low and high <= most, high < least or low > most, half_width)


def law(evidence: Evidence, level: float) -> Judgement:
    """Judge by the Dvoretzky-Kiefer-Wolfowitz band around the empirical distribution function.

    The estimate is the largest distance between the empirical distribution function and the law; its limits are the estimate less
    and plus the band's half-width.  Confirm if the upper limit is below the margin; refute if the lower limit is above it.
    """
    # Exact evidence has no band.
    half = sqrt(log(2.0 / level) / (2.0 * evidence.replications)) if evidence.replications else 0.0
    low, high = max(0.0, evidence.estimate - half), evidence.estimate + half
    if low > evidence.margin:
        return Judgement(REFUTED, low, high)
    if high < evidence.margin:
        return Judgement(CONFIRMED, low, high)
    return Judgement(INCONCLUSIVE, low, high, enough_for_a_law(level, abs(evidence.margin - evidence.estimate)))


def enough_for_a_law(level: float, half_width: float) -> int:
    """Return the number of draws from which on the band has at most a half-width."""
    return ceil(min(log(2.0 / level) / (2.0 * half_width**2), MOST)) if half_width > 0.0 else MOST


def ordering(evidence: Evidence, level: float) -> Judgement:
    """Confirm if the interval of the paired difference lies below the prediction; refute if above.

    An exact difference is a tie within rounding of the prediction, and a tie refutes an order.
    """
    low, high = evidence.interval(level)
    slack = IDENTITY_TOLERANCE * max(1.0, abs(evidence.prediction))
    below = high < evidence.prediction - slack
    above = low > evidence.prediction + slack or (evidence.replications == 0 and not below)
    return _judge(evidence, level, below, above, abs(evidence.estimate - evidence.prediction))


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


KINDS: dict[str, Callable[[Evidence, float], Judgement]] = {
    "identity": identity,
    "equality": equality,
    "upper bound": upper_bound,
    "rate": rate,
    "law": law,
    "ordering": ordering,
}
