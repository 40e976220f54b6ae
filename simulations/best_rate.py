"""How far arms lead each other, each at its own best learning rate, from few draws of a world or few seeds.

What is estimated is the lead of the arms' largest *population* means over the grid of rates: the best of the rates tried.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit

from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import evidence
from grpo_theory.validation import Array

SUBSETS = 500
"""Halves at random, and as many complements, where not all halves are used: up to 12 units all are, 924 of 12."""

SKEWNESS = 1.5
"""Of a unit's lead, at most. Over 240 draws of a world that of pairs of sizes is up to 1.4, and mostly below 0.5."""

LEAD_FACTS = {"other_sign": "share of draws of the other sign", "at_end": "a best rate is at the end of the grid"}
"""What the facts of a claim call the columns of a lead."""


def lead(sides: Sequence[Array], contrast: Sequence[float] = (1.0,), judged: Sequence[Array] | None = None) -> dict[str, Any]:
    """Return what sides have at their best rates, weighted by a contrast, as a row with limits that count the choice.

    Parameters
    ----------
    sides : sequence of ndarray, each of shape (rates, ..., units)
        The measure by which rates are chosen. Units are independent: seeds, or draws of a world, each the mean of its runs. A
        side is an arm at its rates, or several arms at theirs, where the best arm is meant. The same units serve all sides.
    contrast : sequence of float
        The weight of each side: (1, -1) for a lead.
    judged : sequence of ndarray, optional
        Another measure, which the chosen rates are judged by. Without it the lead is in the measure that chooses.

    Returns
    -------
    dict
        `estimate`, `standard_error` and `replications`, which is the number of units. `low` and `high` are 95% limits by
        Student's t. `other_sign` is the share of units whose own lead has the other sign, at the rates that are best for all.
        `at_end` says whether a best rate is at the end of its grid.

    Notes
    -----
    The largest of several sample means is too high, since it counts luck. Halves of the units promise more than all of them, by
    about as much. So the estimate is ``2 max - mean of halves' max``. To first order the error of a maximum does not depend on
    where it is. So it is that of the units' paired leads at fixed rates. This is averaged over the halves' choices, because
    units differ least at the rate where they were lucky. Another measure has no such luck in the half that did not choose.
    """
    units, weights = sides[0].shape[-1], np.asarray(contrast, dtype=float)
    rates = [len(side) for side in sides]
    sides = [side.reshape(-1, units) for side in sides]
    wanted = sides if judged is None else [values.reshape(-1, units) for values in judged]
    places = [int(side.mean(axis=-1).argmax()) for side in sides]
    chosen = [place * count // len(side) for place, count, side in zip(places, rates, sides, strict=True)]
    at_end = any(place in (0, count - 1) for place, count in zip(chosen, rates, strict=True) if count > 1)
    chooses = halves(units)
    others = 1.0 - chooses
    total, at_chosen = 0.0, np.zeros((len(chooses), units))
    for weight, side, values in zip(weights, sides, wanted, strict=True):
        means = side @ (chooses / chooses.sum(axis=1, keepdims=True)).T  # (rates, halves)
        own = values[means.argmax(axis=0)]  # (halves, units)
        judges = (own * others).sum(axis=1) / others.sum(axis=1)
        best = 2.0 * side.mean(axis=-1).max() - means.max(axis=0).mean() if judged is None else judges.mean()
        total, at_chosen = total + weight * best, at_chosen + weight * own
    error = float(np.sqrt(at_chosen.var(axis=-1, ddof=1).mean() / units))
    at_best = sum(weight * values[place] for weight, values, place in zip(weights, wanted, places, strict=True))
    row = {"estimate": float(total), "standard_error": error, "replications": units}
    return with_limits(row) | {"other_sign": float((np.asarray(at_best) * total < 0.0).mean()), "at_end": at_end}


def ahead(one: Array, other: Array, **facts: float) -> tuple[Evidence, dict[str, float]]:
    """Return by how much an arm (rates, units) leads another, each at its best rate, as evidence against 0, and facts."""
    row = lead([one, other], (1.0, -1.0))
    return evidence(row, 0.0), {**facts, **{fact: float(row[column]) for column, fact in LEAD_FACTS.items()}}


def with_limits(row: dict[str, float]) -> dict[str, float]:
    """Return a row with its 95% limits by Student's t, and the skewness that the limits of its verdict allow for."""
    half = float(stdtrit(row["replications"] - 1, 0.975)) * row["standard_error"]
    return row | {"low": row["estimate"] - half, "high": row["estimate"] + half, "skewness": SKEWNESS}


@cache
def halves(units: int) -> Array:
    """Return which units choose, (halves, units) of 0 and 1: all halves, or some at random, and their complements."""
    if units <= 12:
        parts = np.array(list(combinations(range(units), units // 2)))
    else:
        order = np.random.default_rng(0).permuted(np.tile(np.arange(units), (SUBSETS, 1)), axis=1)
        parts = order[:, : units // 2]
    some = (parts[..., None] == np.arange(units)).any(axis=1).astype(np.float64)
    return np.concatenate([some, 1.0 - some]) if units % 2 or units > 12 else some
