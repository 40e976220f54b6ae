"""A criterion for the three phases of training with division by the standard deviation: a function of measured curves.

Between two checkpoints a run is

    I    near-orthogonal, of high deviation, and division gains: its advantage surely rises by more than what is noticed;
    II   near-orthogonal after a phase I, and the advantage is stable: it surely changes by no more than that;
    III  no longer near-orthogonal, and division surely gains no more than that;

and otherwise none of them, because what is printed does not happen there, or because the runs are too few to say.
"""

import numpy as np
from numpy.typing import ArrayLike

ORTHOGONAL = 2.0 / 3.0
"""The least share of |cos| < 0.1 in phases I and II: half-way between the 80% printed for phase II and the 52% for phase III."""
HIGH = 0.5
"""The least mean standard deviation of phase I, relative to the run's highest."""
NOTICEABLE = 0.01
"""A point of success is what a few hundred questions can show."""
NAMES = ("I", "II", "III")


def is_orthogonal(shares: ArrayLike) -> np.ndarray:
    """Return where the share of |cos| < 0.1 is that of phases I and II."""
    return np.asarray(np.asarray(shares) >= ORTHOGONAL)


def is_high(deviations: ArrayLike) -> np.ndarray:
    """Return where mean standard deviations along a run are high, relative to the highest of them."""
    found = np.asarray(deviations)
    return np.asarray(found >= HIGH * found.max())


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
    found: list[str] = []
    for i in range(len(low)):
        if orthogonal[i] and varied[i] and low[i] > NOTICEABLE:
            found.append("I")
        elif orthogonal[i] and "I" in found and max(-low[i], high[i]) <= NOTICEABLE:
            found.append("II")
        elif not orthogonal[i] and high[i] <= NOTICEABLE:
            found.append("III")
        else:
            found.append("")
    return found
