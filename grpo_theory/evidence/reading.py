"""From rows of tables to evidence: the one builder for all studies."""

from collections.abc import Callable, Mapping
from math import log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import rel_entr

from grpo_theory.evidence.claim import Statement
from grpo_theory.evidence.rules import SKEWNESS, Evidence, Share, as_side, rounding
from grpo_theory.validation import Array, as_array, as_numbers, as_real_array, check_shape, check_within

EvidenceRow = Mapping[Any, Any]


class BoundedMean(Share):
    """A mean of independent shares, each between 0 and 1: its limits are Hoeffding's (1963, Theorem 1), whatever their law.

    The probability that a mean of n shares is as far from the truth m as p, on the same side, is at most ``exp(-n [p log(p/m) +
    (1-p) log((1-p)/(1-m))])``.  Where all shares are 0 the sample has no spread, and Student's limits then have no width.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import BoundedMean
    >>> low, high = BoundedMean(estimate=0.0, prediction=0.1, replications=500).interval(0.05)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.007)
    """

    def interval(self, level: float) -> tuple[float, float]:
        """Return limits that miss the truth with probability at most `level`."""
        return self._limits(self.estimate * self.replications, self.replications, level)

    @staticmethod
    def _limits(hits: float, trials: int, level: float) -> tuple[float, float]:
        mean, most = hits / trials, log(2.0 / level) / trials

        # Hoeffding (1963, Theorem 1): P(mean >= p) <= exp(-n KL(p, truth)), so KL(p, limit) = log(2 / level) / n.
        def excess(truth: float) -> float:
            return float(rel_entr(mean, truth) + rel_entr(1.0 - mean, 1.0 - truth)) - most

        least = np.finfo(float).tiny
        low = 0.0 if mean <= 0.0 or excess(least) <= 0.0 else brentq(excess, least, mean, xtol=1e-12)
        high = 1.0 if mean >= 1.0 else brentq(excess, mean, 1.0 - 1e-15, xtol=1e-12)
        return low, high


def exact(estimate: float, prediction: float, margin: float = 0.0) -> Evidence:
    """Return the evidence of an exact computation.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import exact
    >>> exact(4.0, 4.0).standard_error
    0.0
    """
    return Evidence(float(estimate), float(prediction), margin=margin)


def evidence(row: EvidenceRow, prediction: float | None = None, margin: float = 0.0, comparisons: int = 1) -> Evidence:
    """Return the evidence of a row, against its own prediction or another; the row may say how skewed a replication is at most.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import evidence
    >>> row = {"estimate": 0.6, "standard_error": 0.03, "replications": 200, "prediction": 0.58}
    >>> evidence(row).prediction, evidence(row, prediction=0.5).prediction
    (0.58, 0.5)
    """
    skewness = row.get("skewness", np.nan)
    return Evidence(
        estimate=float(row["estimate"]),
        prediction=float(row["prediction"] if prediction is None else prediction),
        standard_error=float(row["standard_error"]),
        margin=margin,
        replications=int(row["replications"]),
        comparisons=comparisons,
        skewness=SKEWNESS if np.isnan(skewness) else float(skewness),
    )


def mean_of(sample: ArrayLike) -> tuple[float, float, int]:
    """Return the mean of independent replications (R,) as a side of a check: with its standard error and R.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import mean_of
    >>> mean_of([0.0, 1.0, 2.0, 1.0])
    (1.0, 0.408248290463863, 4)
    """
    values = _numbers(sample)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)), values.size


def summary(sample: Array) -> dict[str, float]:
    """Return the mean of a sample (R,), its standard error and R as the columns of a row; a single value is exact.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import summary
    >>> summary([0.5])
    {'estimate': 0.5, 'standard_error': 0.0, 'replications': 0}
    """
    if len(sample) == 1:
        return {"estimate": float(sample[0]), "standard_error": 0.0, "replications": 0}
    return dict(zip(("estimate", "standard_error", "replications"), mean_of(sample), strict=True))


def largest(values: ArrayLike) -> float:
    """Return the largest of several estimates; raise if one is not a number.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from grpo_theory.evidence.reading import largest
    >>> largest([0.1, 0.4, 0.3])
    0.4
    """
    return float(_numbers(values).max())


def most(holds: ArrayLike) -> Share:
    """Return evidence that something holds in most draws: the share of draws in which it fails, against one half.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import most
    >>> found = most([True] * 95 + [False] * 5)
    >>> round(found.estimate, 3), found.prediction, found.replications
    (0.05, 0.5, 100)
    """
    found = as_array("holds", holds, np.bool_)
    return Share(float(1.0 - found.mean()), 0.5, margin=0.0, replications=found.size)


def _numbers(values: ArrayLike) -> Array:
    found = as_numbers("estimates", values)
    if np.isnan(found).any():
        raise ValueError(f"estimates must be numbers, got {found.tolist()}")
    return found


def difference(one: EvidenceRow, other: EvidenceRow, prediction: float = 0.0) -> Evidence:
    """Return the difference of two rows' estimates, from independent draws, as evidence.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import difference
    >>> first = {"estimate": 0.6, "standard_error": 0.03, "replications": 200}
    >>> second = {"estimate": 0.5, "standard_error": 0.04, "replications": 100}
    >>> found = difference(first, second)
    >>> round(found.estimate, 3), round(found.standard_error, 3), found.replications
    (0.1, 0.05, 100)
    """
    return Evidence(
        estimate=float(one["estimate"] - other["estimate"]),
        prediction=prediction,
        standard_error=float(np.hypot(one["standard_error"], other["standard_error"])),
        replications=int(min(one["replications"], other["replications"])),
    )


def distance(row: EvidenceRow, prediction: float, margin: float) -> Evidence:
    """Return the relative distance of a row's estimate from an approximate prediction, as evidence against a margin.

    For upper bounds: a law that is claimed to so many percent is not refuted by being off by less, however surely it is.

    Examples
    --------
    >>> from grpo_theory.evidence.reading import distance
    >>> found = distance({"estimate": 1.02, "standard_error": 0.01, "replications": 200}, prediction=1.0, margin=0.05)
    >>> round(found.estimate, 3), found.prediction
    (0.02, 0.05)
    """
    return Evidence(
        estimate=abs(float(row["estimate"]) - prediction) / abs(prediction),
        prediction=margin,
        standard_error=float(row["standard_error"]) / abs(prediction),
        replications=int(row["replications"]),
    )


def two_sides(statement: Statement, sides: Any) -> tuple[Evidence, Mapping[str, float]]:
    """Return the evidence of two sides, and the facts that were given beside them.

    Parameters
    ----------
    statement : Statement
        Whose kind says which place of an array is the worst.
    sides : tuple or Evidence
        (left, right), each a number, an array or (estimate, standard error, number of draws), or evidence; facts may follow.

    Raises
    ------
    ValueError
        If they are neither, or not finite; the message says what was found.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.evidence.reading import two_sides
    >>> bound = gt.Statement("X1", "example", "squares of shares are at most the shares", "upper bound")
    >>> found, facts = two_sides(bound, ([0.25, 0.81], [0.5, 0.9]))
    >>> found.estimate, found.prediction
    (0.81, 0.9)
    """
    given = tuple(sides) if isinstance(sides, tuple | list) else (sides,)
    facts = given[-1] if isinstance(given[-1], Mapping) else {}
    given = given[: len(given) - bool(isinstance(given[-1], Mapping))]
    if len(given) == 1 and isinstance(given[0], Evidence):
        return given[0], facts
    if len(given) != 2:
        raise ValueError(f"{statement.id}: a check returns (left, right), or evidence, and perhaps facts, got {sides!r}")
    (left, left_error, left_draws), (right, right_error, right_draws) = (as_side(statement.id, one) for one in given)
    left, right = np.broadcast_arrays(left, right)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError(f"{statement.id}: sides must be finite, got {left.ravel()[:8]} and {right.ravel()[:8]}")
    place = np.unravel_index(int(np.argmax(FARTHEST[statement.kind](left, right))), left.shape)
    draws = min((one for one in (left_draws, right_draws) if one), default=0)
    error, count = float(np.hypot(left_error, right_error)), left.size if draws else 1
    return Evidence(float(left[place]), float(right[place]), error, replications=draws, comparisons=count), facts


FARTHEST: dict[str, Callable[[Array, Array], Array]] = {
    "identity": lambda left, right: np.abs(left - right) / np.maximum(1.0, np.abs(right)),
    "equality": lambda left, right: (
        np.maximum(np.abs(left - right) - rounding(right), 0.0) / np.maximum(np.abs(right), np.finfo(float).tiny)
    ),
    "rate": lambda left, right: np.abs(left - right),
    "upper bound": lambda left, right: left - right - rounding(right),
    "ordering": lambda left, right: left - right + rounding(right),
    "law": lambda left, right: left - right,
}
"""How far the left side is on the wrong side of the right one, by kind: no other place is refuted unless the farthest is."""


LARGEST = 1e100
"""Squares of standard errors are numbers up to it."""


def log_log_slope(x: ArrayLike, y: ArrayLike, standard_errors: ArrayLike | None = None) -> tuple[float, float]:
    """Return the least-squares slope of log y on log x and its standard error.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Positive, at least two points.
    standard_errors : array_like, shape (n,), optional
        Standard errors of independent y; zero if omitted.

    Returns
    -------
    slope, standard_error : float
        The standard error carries those of y through the logarithm (delta method).

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.evidence import log_log_slope
    >>> slope, error = log_log_slope([10, 100, 1000], 3.0 / np.array([10, 100, 1000]))
    >>> round(slope, 6)
    -1.0
    """
    x, y = as_real_array("x", x, 1), as_real_array("y", y, 1)
    errors = np.zeros_like(y) if standard_errors is None else as_real_array("standard_errors", standard_errors, 1)
    for name, array in (("y", y), ("standard_errors", errors)):
        check_shape(name, array, x.shape, "(n,), one a point")
    if np.unique(x).size < 2:
        raise ValueError(f"x must have at least two different values for a slope, got {x.tolist()}")
    if (x <= 0.0).any() or (y <= 0.0).any():
        raise ValueError("x and y must be above 0 for a log-log slope")
    check_within("standard_errors", errors, 0.0, LARGEST)
    # The least-squares slope is w . log y with w = (log x - mean) / |log x - mean|^2; the error of log y is that of y over y.
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred @ centred)
    return float(weights @ np.log(y)), float(np.sqrt(((weights * errors / y) ** 2).sum()))
