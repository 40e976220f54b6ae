"""Contests of arms for a level of the objective: the updates that each needs at its best step, and the claims about them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import evidence, highest
from grpo_theory.harness.study import Rows
from grpo_theory.harness.summary import summary
from simulations.best_rate import LEAD_FACTS, lead

CONTROL = "broken"


class Contest(NamedTuple):
    """An arm that is said to need at most `allowance` times the updates of each of its rivals."""

    statement: Statement
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


def time_rows(contests: Sequence[Contest], steps: Mapping[str, Sequence[float]], times: Mapping[str, Array]) -> Rows:
    """Return each arm's time at its best step and at all that were tried, and the difference of each contest.

    The control takes the place of the arm in a contest. Times are (steps, units), of each arm's own steps.
    """
    table: Rows = []
    for arm, tried in times.items():
        at_best = {"quantity": "time", "arm": arm, "step": steps[arm][tried.mean(axis=1).argmin()]}
        table.append(at_best | lead([-tried], (-1.0,)))
        at_each = zip(steps[arm], tried, strict=True)
        table += [{"quantity": "tuning", "arm": arm, "step": step} | summary(at) for step, at in at_each]
    for statement, contestant, rivals, allowance in contests:
        for arm, rival in product((contestant, CONTROL), rivals):
            row = {"quantity": "difference", "statement": statement.id, "arm": arm, "rival": rival}
            table.append(row | behind(times[arm], times[rival], allowance))
    return table


def contest_claims(contests: Sequence[Contest], setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield the claims of a setting: differences of times, the worst of an arm's rivals, and the control in its place."""
    times = part[part["quantity"] == "time"].set_index("arm")
    for statement, arm, rivals, _ in contests:
        differences = part[part["statement"] == statement.id]
        facts = {
            f"{fact}, {one}": float(times.loc[one, column])
            for fact, column in (("updates", "estimate"), ("step", "step"))
            for one in (arm, *rivals)
        }
        (own, place), (control, _) = (_worst(differences[differences["arm"] == one]) for one in (arm, CONTROL))
        facts |= {fact: float(differences.loc[place, column]) for column, fact in LEAD_FACTS.items()}
        yield statement.claim(setting, own, control, facts=facts)


def _worst(differences: pd.DataFrame) -> tuple[Evidence, int]:
    """Return the evidence of the largest difference, the level shared among all, and where it stands."""
    place = highest(differences["estimate"])
    return evidence(differences.loc[place], 0.0, comparisons=len(differences)), place
