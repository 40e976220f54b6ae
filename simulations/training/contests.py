"""Contests of arms for a level of the objective: the updates that each needs at its best step, and who is sooner."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import evidence
from simulations.best_rate import LEAD_FACTS, lead

NOTICEABLE = 1.05
"""A twentieth more updates is not noticed: two runs that differ in nothing but the seed differ by more."""


class Contest(NamedTuple):
    """An arm that is said to need at most `allowance` times the updates of each of its rivals."""

    arm: str
    rivals: tuple[str, ...]
    allowance: float = 1.0


def updates_to_level(objectives: Array, checkpoints: Integers, level: float) -> Array:
    """Return the number of updates after which each run's exact objective (R, C) first reaches a level, shape (R,).

    Between checkpoints it is taken to be linear; a run that never gets there, or diverges, counts as all updates.
    """
    reached = objectives >= level
    last = reached.argmax(axis=1)
    there = reached.any(axis=1) & (last > 0)
    rows, first = np.flatnonzero(there), np.maximum(last - 1, 0)[there]
    before, after = objectives[rows, first], objectives[rows, first + 1]
    times = np.where(reached[:, 0], checkpoints[0], checkpoints[-1]).astype(np.float64)
    start, stop = checkpoints[first], checkpoints[first + 1]
    times[there] = start + (level - before) / (after - before) * (stop - start)
    return times


def behind(arm: Array, rival: Array, allowance: float = 1.0) -> dict[str, float]:
    """Return by how much the time of an arm exceeds that of a rival, each at its best step; times are (steps, units)."""
    return lead([-arm, -rival], (-1.0, allowance))


def times_of(arms: Iterable[Mapping[str, Any]]) -> dict[str, Array]:
    """Return the times of each arm, (steps, units)."""
    return {one["arm"]: np.array(one["times"]) for one in arms}


def contested(
    contests: Mapping[str, Contest], arms: Iterable[Mapping[str, Any]], instead: str
) -> dict[str, tuple[Evidence, dict[str, float]]]:
    """Return by how much an arm, or another instead, is behind the worst of its rivals, the level shared among all."""
    sides, times, steps = {}, times_of(arms), {one["arm"]: one["steps"] for one in arms}
    for name, (arm, rivals, allowance) in contests.items():
        differences = [behind(times[instead or arm], times[rival], allowance) for rival in rivals]
        worst = max(differences, key=lambda one: one["estimate"])
        facts = {f"updates, {one}": lead([-times[one]], (-1.0,))["estimate"] for one in (arm, *rivals)}
        facts |= {f"step, {one}": steps[one][times[one].mean(axis=1).argmin()] for one in (arm, *rivals)}
        facts |= {fact: float(worst[column]) for column, fact in LEAD_FACTS.items()}
        sides[name] = evidence(worst, 0.0, comparisons=len(rivals)), facts
    return sides
