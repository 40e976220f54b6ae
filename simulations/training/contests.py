"""Contests of compositions of advantage, ratio, clip and aggregation for a level of the objective, and who is sooner."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence.reading import evidence
from simulations.best_rate import LEAD_FACTS, lead


def wrong_for_half(batch, advantages):
    """A as in dr_grpo, with the wrong sign for the first half of each group: for controls, because the mean update is 0."""
    for b in range(batch.rewards.shape[0]):
        advantages[b] = batch.rewards[b] - batch.rewards[b].mean()
        advantages[b, : (batch.rewards.shape[1] + 1) // 2] *= -1.0


_PLAIN = replace(find("tic_grpo"), name="no ratio", ratio=RATIOS["none"], clip=CLIPS["none"])
_TOKEN = replace(_PLAIN, name="token ratio, clip by sign", ratio=RATIOS["token"], clip=CLIPS["by sign"])
_GSPO = find("gspo")
ARMS: Mapping[str, Estimator] = {
    "TIC": find("tic_grpo"),
    "GRPO": replace(_TOKEN, name="GRPO", advantage=find("grpo").advantage, aggregation=AGGREGATIONS["own length"]),
    "GSPO": _GSPO,
    "GSPO, wide clip": replace(_GSPO, name="GSPO, wide clip", clip=CLIPS["by sign"]),
    "neither": _TOKEN,
    "ratio alone": replace(_TOKEN, name="trajectory ratio, clip by sign", ratio=RATIOS["trajectory"]),
    "clip alone": replace(_TOKEN, name="token ratio, upper-only clip", clip=CLIPS["upper only"]),
    "no clip": replace(_PLAIN, name="trajectory ratio, no clip", ratio=RATIOS["trajectory"]),
    "no ratio": _PLAIN,
    "broken": replace(find("tic_grpo"), name="broken", advantage=make_estimator("wrong_for_half", wrong_for_half).advantage),
}
"""TIC-GRPO, GRPO and GSPO are as published. The arm `neither` has TIC-GRPO's advantages and aggregation with GRPO's token ratio
and clip. The arms after it change one part of it at a time. The arm `broken` is TIC-GRPO with every second sign wrong."""
NOTICEABLE = 1.05
"""A twentieth more updates is not noticed: two runs that differ in nothing but the seed differ by more."""


CONTESTS = {
    "T8/training": ("no ratio", ("neither",), NOTICEABLE),
    "T14/against GRPO": ("TIC", ("GRPO",), 1.0),
    "T14/against GSPO": ("TIC", ("GSPO",), 1.0),
    "T14/against GSPO, wide clip": ("TIC", ("GSPO, wide clip",), 1.0),
    "T14/ratio": ("ratio alone", ("neither",), 1.0),
    "T14/clip": ("clip alone", ("neither",), 1.0),
    "T14/both": ("TIC", ("ratio alone", "clip alone"), 1.0),
    "T14/against no clip": ("TIC", ("no clip",), 1.0),
    "T14/against no ratio": ("TIC", ("no ratio",), 1.0),
}
"""An arm, its rivals, and how many times the updates of each of these it is said to need at most."""


def updates_to_level(objectives, checkpoints, level):
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


def behind(arm, rival, allowance=1.0):
    """Return by how much the time of an arm exceeds that of a rival, each at its best step; times are (steps, units)."""
    return lead([-arm, -rival], (-1.0, allowance))


def times_of(arms):
    """Return the times of each arm, (steps, units)."""
    return {one["arm"]: np.array(one["times"]) for one in arms}


def contested(contests, arms, instead):
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
