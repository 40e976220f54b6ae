"""What is estimated from a log, with limits: shares of its groups, means, and the course of a mean over training steps.

The course is a broken line: since when the mean rises or falls, and limits of its turning points.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtri, ndtri, stdtrit

from grpo_theory.validation import Array

Knots = tuple[float, ...]
FEWEST_STEPS = 8
MOST_POINTS = 160
"""Of more steps, neighbours are averaged."""
MOST_KNOTS, MOST_LAGS = 3, 4
"""There is at most a knot for ten steps, and for 15 steps one correlation of neighbouring residuals that is added up."""
SHOWN = 0.001
"""The level at which a change is said to be there: strict, because the knots were chosen where the line bends most."""
KNOT_LEVEL = 0.99
"""The level of a turning point's limits with the other knots fixed; it is meant to leave 95% when these are free."""


class Estimate(NamedTuple):
    """A number with its 95% limits."""

    value: float
    low: float
    high: float


def clustered_share(values: Array, clusters: np.ndarray) -> Estimate:
    """Return the mean of values (N,) in [0, 1] with 95% limits, where values of one cluster (N,) may depend on each other.

    The limits are Wilson's at the effective sample size p (1 - p) / v, where v is the variance of the mean over clusters.
    The size is cut by the squared ratio of normal to t quantiles, as v has few degrees of freedom (Korn and Graubard 1998).
    If all values are equal the size is the number of clusters.
    """
    from statsmodels.stats.proportion import proportion_confint  # slow to import, as are the others

    values = np.asarray(values, dtype=float)
    mean, index = float(values.mean()), np.unique(clusters, return_inverse=True)[1]
    sums = np.bincount(index, values - mean)
    n = sums.size
    variance = float((sums**2).sum()) * n / max(n - 1, 1) / values.size**2
    size = float(n)
    if variance > 1e-12:
        size = mean * (1.0 - mean) / variance * (ndtri(0.975) / stdtrit(max(n - 1, 1), 0.975)) ** 2
    low, high = proportion_confint(mean * size, size, method="wilson")
    return Estimate(mean, max(0.0, float(low)), min(1.0, float(high)))


def group_signal(rows: pd.DataFrame, ends: tuple[float, float]) -> dict[str, Estimate]:
    """Return the shares of groups whose rewards are mixed, all right or all wrong, from the rows' group, prompt and reward.

    Right are the highest rewards of the whole log, whose `ends` these are, and wrong the lowest. If the log has one reward, right
    and wrong cannot be told apart: both shares are NaN, between 0 and 1.
    """
    groups = rows.groupby("group", sort=False).agg(low=("reward", "min"), high=("reward", "max"), prompt=("prompt", "first"))
    kinds = {"mixed": groups["low"] < groups["high"], "right": groups["low"] == ends[1], "wrong": groups["high"] == ends[0]}
    found = {name: clustered_share(one.to_numpy(), pd.factorize(groups["prompt"])[0]) for name, one in kinds.items()}
    return found if ends[0] < ends[1] else found | dict.fromkeys(("right", "wrong"), Estimate(np.nan, 0.0, 1.0))


def mean_estimate(values: Array) -> Estimate:
    """Return the mean of values (N,) with Student's 95% limits."""
    half = float(stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / values.size**0.5)
    return Estimate(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half)


class Change(NamedTuple):
    """A change of the fitted mean between a step and the last one.

    Attributes
    ----------
    since : Estimate
        The step, with limits if the line bends there.
    start, end : float
        The fitted mean at both steps.
    difference : Estimate
    direction : str
        "rising" or "falling" if the difference is shown at the level `SHOWN`. "level" if its limits hold 0,
        and else "level or" these.
    """

    since: Estimate
    start: float
    end: float
    difference: Estimate
    direction: str


@dataclass(frozen=True, eq=False)
class Course:
    """A broken line through the means of steps.

    Attributes
    ----------
    steps : ndarray, shape (S,)
    knots : mapping of float to Estimate
        The steps at which the line bends, with their limits.
    coefficients : ndarray, shape (2 + K,)
    covariance : ndarray, shape (2 + K, 2 + K)
    freedom : float
        The degrees of freedom of the residuals, fewer if neighbouring ones are alike.
    """

    steps: Array
    knots: dict[float, Estimate]
    coefficients: np.ndarray
    covariance: np.ndarray
    freedom: float

    def since(self, step: float) -> Change:
        """Return the change since a step."""
        start, end = _hinges(np.array([step, self.steps[-1]]), self.knots)
        levels = float(start @ self.coefficients), float(end @ self.coefficients)
        value, error = levels[1] - levels[0], float(np.sqrt((end - start) @ self.covariance @ (end - start)))
        half, far = (error * float(stdtrit(self.freedom, one)) for one in (0.975, 1.0 - SHOWN / 2.0))
        # A change that the limits show, and the stricter level of advice does not, is left open between the two.
        sure, moved = abs(value) > far, "rising" if value > 0.0 else "falling"
        direction = moved if sure else "level" if abs(value) <= half else f"level or {moved}"
        where = self.knots.get(step, Estimate(step, step, step))
        return Change(where, *levels, Estimate(value, value - half, value + half), direction)

    @property
    def now(self) -> Change:
        """The change since the line last bent."""
        return self.since(max(self.knots, default=float(self.steps[0])))

    def fall(self, matters: float) -> Change | None:
        """Return the change since the line was highest, if it is a fall of at least `matters` that is shown."""
        places = np.array([self.steps[0], *self.knots, self.steps[-1]])
        heights = _hinges(places, self.knots) @ self.coefficients
        change = self.since(float(places[np.argmax(heights)]))
        return change if change.direction == "falling" and -change.difference.value >= matters else None


def fit_course(steps: Array, means: Array, weights: Array) -> Course | None:
    """Fit a broken line to the means of steps (S,) with weights (S,), or return None if they are fewer than eight.

    A knot is added while a Bayesian criterion falls.  Residuals whose neighbours are alike, as of drifting difficulty, count as
    fewer ones. These are n/(1 + 2 sum r_k) of n, where r_k is their correlation at lag k.
    """
    if steps.size < FEWEST_STEPS:
        return None
    order, bins = np.argsort(steps), np.arange(steps.size) * min(MOST_POINTS, steps.size) // steps.size
    total = np.bincount(bins, weights[order])
    places, levels = (np.bincount(bins, (weights * one)[order]) / total for one in (steps, means))
    n, root = places.size, np.sqrt(total)
    data = levels * root

    hinges = np.maximum(places[:, None] - places, 0.0) * root[:, None]

    def misfits(knots: Knots, at: np.ndarray) -> Array:
        """Return the squared residuals of lines with these knots and one more, at each of some places by their numbers."""
        basis = np.linalg.qr(_hinges(places, knots) * root[:, None])[0]
        left = data - basis @ (basis.T @ data)
        added = hinges[:, at]
        added = added - basis @ (basis.T @ added)
        return left @ left - (left @ added) ** 2 / np.maximum((added**2).sum(axis=0), 1e-300) + 1e-12

    @cache
    def best_place(knots: Knots) -> float:
        """Return the step, at least two points away from the ends and from other knots, at which a further knot fits best."""
        free = np.arange(2, n - 2)
        for taken in np.searchsorted(places, knots):
            free = free[np.abs(free - taken) > 2]
        return float(places[free[np.argmin(misfits(knots, free))]])

    def limits(knots: Knots, knot: float) -> Estimate:
        """Return a knot with limits: the steps between those where it fits no worse, by an F test, the others fixed."""
        others, inside = tuple(one for one in knots if one != knot), np.arange(1, n - 1)
        worst = misfits(others, np.searchsorted(places, [knot])) * (1.0 + fdtri(1, freedom, KNOT_LEVEL) / freedom)
        fits = places[inside[misfits(others, inside) <= worst]]
        return Estimate(knot, float(fits.min(initial=knot)), float(fits.max(initial=knot)))

    found: list[Knots] = [()]
    while len(found) <= min(MOST_KNOTS, n // 10):  # of ten points, a knot and its neighbours take five
        knots = (*found[-1], best_place(found[-1]))
        for k in (*range(len(knots)), *range(len(knots))):  # each moves to its best place beside the others, twice
            knots = (*knots[:k], best_place(knots[:k] + knots[k + 1 :]), *knots[k + 1 :])
        found.append(tuple(sorted(knots)))
    lines = {knots: _hinges(places, knots) * root[:, None] for knots in found}
    fits = {knots: np.linalg.lstsq(design, data, rcond=None)[0] for knots, design in lines.items()}
    left = {knots: data - lines[knots] @ one for knots, one in fits.items()}
    last = left[found[-1]]
    own = (2 + 3 * (len(found) - 1)) / n  # residuals of a fit are alike by about -own; a searched knot counts three times
    alike = sum(float(last[k:] @ last[:-k] / (last @ last + 1e-300)) + own for k in range(1, min(MOST_LAGS, n // 15) + 1))
    share = 1.0 / (1.0 + 2.0 * max(alike, 0.0))
    knots = min(found, key=lambda one: n * np.log(left[one] @ left[one] + 1e-12) + 3 * len(one) * np.log(n))
    freedom = max(share * n - 2.0 - 3.0 * len(knots), 1.0)
    covariance = np.linalg.pinv(lines[knots].T @ lines[knots]) * float(left[knots] @ left[knots]) / (share * freedom)
    return Course(places, {one: limits(knots, one) for one in knots}, fits[knots], covariance, freedom)


def _hinges(steps: Array, knots: Iterable[float]) -> Array:
    return np.column_stack([np.ones(steps.size), steps, *(np.maximum(steps - one, 0.0) for one in knots)])
