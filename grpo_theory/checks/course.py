"""The course of a mean over training steps: a broken line, since when it rises or falls, and limits of its turning points."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

from grpo_theory.checks.sentences import Estimate
from grpo_theory.validation import Array

FEWEST_STEPS = 8
MOST_POINTS = 160
"""Of more steps, neighbours are averaged."""
MOST_KNOTS, MOST_LAGS = 3, 4
"""There is at most a knot for ten steps, and for 15 steps one correlation of neighbouring residuals that is added up."""
SHOWN = 0.001
"""The level at which a change is said to be there: strict, because the knots were chosen where the line bends most."""
KNOT_LEVEL = 0.99
"""The level of a turning point's limits with the other knots fixed; it is meant to leave 95% when these are free."""


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


class _Steps(NamedTuple):
    """Steps (S,), and the means of these and 1, both times the root of the steps' weights."""

    steps: Array
    means: Array
    root: Array

    def misfits(self, knots: tuple[float, ...], places: Array) -> Array:
        """Return the squared residuals of lines with these knots and one more, at each of the places (P,)."""
        basis = np.linalg.qr(_hinges(self.steps, knots) * self.root[:, None])[0]
        left = self.means - basis @ (basis.T @ self.means)
        added = np.maximum(self.steps[:, None] - places, 0.0) * self.root[:, None]
        added = added - basis @ (basis.T @ added)
        return left @ left - (left @ added) ** 2 / np.maximum((added**2).sum(axis=0), 1e-300) + 1e-12

    def best_place(self, knots: tuple[float, ...]) -> float | None:
        """Return the step, at least two points away from the ends and from other knots, at which a further knot fits best."""
        taken = np.searchsorted(self.steps, knots)
        free = [k for k in range(2, self.steps.size - 2) if all(abs(k - other) > 2 for other in taken)]
        return float(self.steps[free][np.argmin(self.misfits(knots, self.steps[free]))]) if free else None

    def settled(self, knots: tuple[float, ...]) -> tuple[float, ...]:
        """Move each knot to its best place beside the others, twice."""
        for k in (*range(len(knots)), *range(len(knots))):
            others = knots[:k] + knots[k + 1 :]
            place = self.best_place(others)
            knots = knots if place is None else (*knots[:k], place, *knots[k + 1 :])
        return tuple(sorted(knots))

    def limits(self, knots: tuple[float, ...], knot: float, freedom: float) -> Estimate:
        """Return a knot with limits: the steps between those where it fits no worse, by an F test, the others fixed."""
        others, inside = tuple(one for one in knots if one != knot), self.steps[1:-1]
        misfits = self.misfits(others, inside)
        fits = inside[misfits <= self.misfits(others, np.array([knot])) * (1.0 + fdtri(1, freedom, KNOT_LEVEL) / freedom)]
        return Estimate(knot, float(fits.min(initial=knot)), float(fits.max(initial=knot)))


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
    data, n = _Steps(places, levels * np.sqrt(total), np.sqrt(total)), places.size
    found: list[tuple[float, ...]] = [()]
    while len(found) <= min(MOST_KNOTS, n // 10) and (place := data.best_place(found[-1])) is not None:
        found.append(data.settled((*found[-1], place)))
    lines = {knots: _hinges(places, knots) * data.root[:, None] for knots in found}
    fits = {knots: np.linalg.lstsq(design, data.means, rcond=None)[0] for knots, design in lines.items()}
    left = {knots: data.means - lines[knots] @ one for knots, one in fits.items()}
    last = left[found[-1]]
    own = (2 + 3 * (len(found) - 1)) / n  # residuals of a fit are alike by about -own; a searched knot counts three times
    alike = sum(float(last[k:] @ last[:-k] / (last @ last + 1e-300)) + own for k in range(1, min(MOST_LAGS, n // 15) + 1))
    share = 1.0 / (1.0 + 2.0 * max(alike, 0.0))
    knots = min(found, key=lambda one: n * np.log(left[one] @ left[one] + 1e-12) + 3 * len(one) * np.log(n))
    freedom = max(share * n - 2.0 - 3.0 * len(knots), 1.0)
    covariance = np.linalg.pinv(lines[knots].T @ lines[knots]) * float(left[knots] @ left[knots]) / (share * freedom)
    return Course(places, {one: data.limits(knots, one, freedom) for one in knots}, fits[knots], covariance, freedom)


def _hinges(steps: Array, knots: tuple[float, ...] | dict[float, Estimate]) -> Array:
    return np.column_stack([np.ones(steps.size), steps, *(np.maximum(steps - one, 0.0) for one in knots)])
