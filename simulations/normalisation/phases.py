"""A criterion for the three phases of training with division by the standard deviation: a function of measured curves.

Between two checkpoints a run is in phase

- I, if it is near-orthogonal, of high deviation, and division gains: its advantage surely rises by more than what is noticed;
- II, if it is near-orthogonal after a phase I, and the advantage is stable: it surely changes by no more than that;
- III, if it is not near-orthogonal, and division surely gains no more than that.

Otherwise it is in none of them, because what is printed does not happen there, or because the runs are too few to say.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from grpo_theory.arrays import Array
from grpo_theory.harness.study import Rows
from grpo_theory.harness.summary import summary

ORTHOGONAL = 2.0 / 3.0
"""The least share of |cos| < 0.1 in phases I and II: half-way between the 80% printed for phase II and the 52% for phase III."""
HIGH = 0.5
"""The least mean standard deviation of phase I, relative to the run's highest."""
NOTICEABLE = 0.01
"""A point of success is what a few hundred questions can show."""
MISS = 0.05
"""The probability that any limit of a sampled run's increases fails, by which windows are given their phase."""


def is_orthogonal(shares: ArrayLike) -> np.ndarray:
    """Return where the share of |cos| < 0.1 is that of phases I and II."""
    return np.asarray(np.asarray(shares) >= ORTHOGONAL)


def is_high(deviations: ArrayLike) -> np.ndarray:
    """Return where mean standard deviations along a run are high, relative to the highest of them."""
    return np.asarray(np.asarray(deviations) >= HIGH * np.max(deviations))


def phases(low: ArrayLike, high: ArrayLike, deviations: ArrayLike, shares: ArrayLike) -> list[str]:
    """Return the phase between each two of C checkpoints: I, II, III or an empty string.

    Parameters
    ----------
    low, high : array_like, shape (C - 1,)
        Limits of the increase of the advantage, that is of success with division less success without, between checkpoints.
    deviations : array_like, shape (C,)
        Mean over prompts of sqrt(V_i) at the checkpoints.
    shares : array_like, shape (C,)
        Share of pairs of prompts whose gradients have |cos| < 0.1.
    """
    low, high = np.asarray(low), np.asarray(high)
    deviations, shares = (np.asarray(values)[:-1] for values in (deviations, shares))
    orthogonal, varied = is_orthogonal(shares), is_high(deviations)
    named: list[str] = []
    for i in range(len(low)):
        if orthogonal[i] and varied[i] and low[i] > NOTICEABLE:
            named.append("I")
        elif orthogonal[i] and "I" in named and max(-low[i], high[i]) <= NOTICEABLE:
            named.append("II")
        elif not orthogonal[i] and high[i] <= NOTICEABLE:
            named.append("III")
        else:
            named.append("")
    return named


def windows(gains: Array, updates: list[int], deviations: Array, shares: Array) -> Rows:
    """Return the increase of the advantage between checkpoints, with the phase that the criterion finds there."""
    increases = [summary(increase) for increase in np.diff(gains, axis=1).T]
    estimates, errors = (np.array([one[name] for one in increases]) for name in ("estimate", "standard_error"))
    runs = len(gains)
    half = -float(stdtrit(runs - 1, MISS / (2 * len(increases)))) * errors if runs > 1 else np.zeros_like(errors)
    names = phases(estimates - half, estimates + half, deviations, shares)
    return [
        {"quantity": "increase", "update": before, "until": after, "phase": name} | one
        for (before, after), name, one in zip(pairwise(updates), names, increases, strict=True)
    ]


def stretches(gains: Array, updates: list[int], deviations: Array, shares: Array) -> Rows:
    """Return the increase of the advantage while deviations are high, and from then on, as far as prompts are near-orthogonal.

    A premise that does not outlast the first window is not judged.
    """
    last = len(updates) if is_orthogonal(shares).all() else int(np.argmin(is_orthogonal(shares)))
    highs = is_high(deviations)
    turn = min(last - 1, len(updates) - 1 if highs.all() else int(np.argmin(highs)))
    return [
        {"quantity": f"increase in {name}", "update": updates[a], "until": updates[b]} | summary(gains[:, b] - gains[:, a])
        for name, a, b in (("I", 0, turn), ("II", turn, last - 1))
        if b > a + (name == "I")
    ]
