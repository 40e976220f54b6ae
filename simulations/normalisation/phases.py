"""A criterion for the three phases of training with division by the standard deviation: a function of measured curves.

Between two checkpoints a run is in phase

- I, if it is near-orthogonal, of high deviation, and division gains: its advantage surely rises by more than what is noticed;
- II, if it is near-orthogonal after a phase I, and the advantage is stable: it surely changes by no more than that;
- III, if it is not near-orthogonal, and division surely gains no more than that.

Otherwise it is in none of them, because what is printed does not happen there, or because the runs are too few to say.
"""

from itertools import pairwise, product

import numpy as np
from scipy.special import stdtrit

from grpo_theory.evidence.reading import evidence, summary

ORTHOGONAL = 2.0 / 3.0
"""The least share of |cos| < 0.1 in phases I and II: half-way between the 80% printed for phase II and the 52% for phase III."""
HIGH = 0.5
"""The least mean standard deviation of phase I, relative to the run's highest."""
NOTICEABLE = 0.01
"""A point of success is what a few hundred questions can show."""
PRINTED_NEAR = {"start": 0.977, "middle": 0.803, "end": 0.524}
"""Shares of |cos| < 0.1 at steps 0, 260 and 500."""
FALL, MORE = 0.1, 0.05
"""A tenth of the pairs is a quarter of the printed drift; half of that must be due to the features, where they are learned."""
MISS = 0.05
"""The probability that any limit of a sampled run's increases fails, by which windows are given their phase."""


def is_orthogonal(shares):
    """Return where the share of |cos| < 0.1 is that of phases I and II."""
    return np.asarray(shares) >= ORTHOGONAL


def is_high(deviations):
    """Return where mean standard deviations along a run are high, relative to the highest of them."""
    return np.asarray(deviations) >= HIGH * np.max(deviations)


def phases(low, high, deviations, shares):
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
    named: list[str] = []
    premises = zip(is_orthogonal(shares[:-1]), is_high(deviations[:-1]), strict=True)
    for least, most, (orthogonal, varied) in zip(low, high, premises, strict=True):
        if orthogonal and varied and least > NOTICEABLE:
            named.append("I")
        elif orthogonal and "I" in named and max(-least, most) <= NOTICEABLE:
            named.append("II")
        else:
            named.append("III" if not orthogonal and most <= NOTICEABLE else "")
    return named


def advantage(arms, arm):
    """Return by how much success, the first measure of runs (R, checkpoints, measures), is ahead of the plain arm's."""
    return (arms[arm] - arms["plain"])[:, :, 0]


def premises(arms, measures):
    """Return mean deviations and shares of near-orthogonal gradients without division, (checkpoints,) each."""
    return arms["plain"].mean(axis=0)[:, [measures.index(name) for name in ("deviation", "orthogonality")]].T


def shown(arms, measures, updates):
    """Yield rows of the measures and advantages of arms, and of the increase of division's, with the phase there."""
    for arm, runs in arms.items():
        both = np.concatenate([runs, advantage(arms, arm)[:, :, None]], axis=2)
        for (c, update), (q, quantity) in product(enumerate(updates), enumerate((*measures, "advantage"))):
            yield {"arm": arm, "quantity": quantity, "update": update} | summary(both[:, c, q])
    gains = advantage(arms, "divided")
    increases = [summary(increase) for increase in np.diff(gains, axis=1).T]
    estimates, errors = (np.array([one[name] for one in increases]) for name in ("estimate", "standard_error"))
    half = -stdtrit(len(gains) - 1, MISS / (2 * len(increases))) * errors if len(gains) > 1 else errors
    names = phases(estimates - half, estimates + half, *premises(arms, measures))
    for (before, after), name, one in zip(pairwise(updates), names, increases, strict=True):
        yield {"arm": "divided", "quantity": "increase", "update": before, "until": after, "phase": name} | one


def first_two(arms, arm, measures, updates):
    """Return the sides of phase I while deviations are high, and of II from then on, as far as prompts are near-orthogonal.

    Minus the increase of the advantage is below 0 in I, and its size at most a point in II.  A premise that does not outlast the
    first window is not judged.
    """
    gains, (deviations, shares) = advantage(arms, arm), premises(arms, measures)
    last = len(updates) if is_orthogonal(shares).all() else int(np.argmin(is_orthogonal(shares)))
    highs = is_high(deviations)
    turn = min(last - 1, len(updates) - 1 if highs.all() else int(np.argmin(highs)))
    found = {}
    for name, a, b, bound in (("I", 0, turn, 0.0), ("II", turn, last - 1, NOTICEABLE)):
        if b > a + (name == "I"):
            increase = gains[:, b] - gains[:, a]
            sign = -1.0 if name == "I" else np.copysign(1.0, increase.mean())
            found[name] = evidence(summary(sign * increase), bound), {"from update": updates[a], "to update": updates[b]}
    return found
