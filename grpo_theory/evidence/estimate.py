"""Evidence: an estimate against a prediction, and the limits of its error."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import betaincinv, stdtrit

from grpo_theory.validation import as_count

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
            raise ValueError(
                f"replications must be at least 1 where there is a standard_error, got {self.standard_error:g} and 0"
            )

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
        # Cornish and Fisher's terms in the skewness, with the gamma's excess kurtosis of 3/2 times its square.
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
        low = float(betaincinv(hits, trials - hits + 1, level / 2.0)) if hits > 0 else 0.0
        high = float(betaincinv(hits + 1, trials - hits, 1.0 - level / 2.0)) if hits < trials else 1.0
        return low, high

    def half_width(self, level: float, replications: int) -> float:
        """Return the distance to the farther limit with so many trials, which of very many falls with their root."""
        trials = min(replications, VERY_MANY)
        low, high = self._limits(self.estimate * trials, trials, level)
        return max(high - self.estimate, self.estimate - low) * sqrt(trials / replications)
