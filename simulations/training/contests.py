"""Contests of arms for a level of the objective: the updates that each needs, paired differences, and the claims about them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import evidence, highest
from grpo_theory.harness.study import Rows
from grpo_theory.harness.summary import summary
from grpo_theory.simulate.training import TrainingRuns
from simulations.training.arms import facts_of, paired

CONTROL = "broken"


class Contest(NamedTuple):
    """An arm that is said to need at most `allowance` times the updates of each of its rivals."""

    statement: Statement
    arm: str
    rivals: tuple[str, ...]
    allowance: float = 1.0


def updates_to_level(runs: TrainingRuns, level: float) -> Array:
    """Return the number of updates after which each run's exact objective first reaches a level, shape (R,).

    Between checkpoints it is taken to be linear; a run that never gets there, or diverges, counts as all updates.
    """
    reached = runs.objectives >= level
    last = reached.argmax(axis=1)
    there = reached.any(axis=1) & (last > 0)
    rows, first = np.flatnonzero(there), np.maximum(last - 1, 0)[there]
    before, after = runs.objectives[rows, first], runs.objectives[rows, first + 1]
    times = np.where(reached[:, 0], runs.checkpoints[0], runs.checkpoints[-1]).astype(np.float64)
    start, stop = runs.checkpoints[first], runs.checkpoints[first + 1]
    times[there] = start + (level - before) / (after - before) * (stop - start)
    return times


def difference_rows(contests: Sequence[Contest], times: Mapping[str, Array]) -> Rows:
    """Return a row for each contest and rival: the time of the arm, or of the control, less that of the rival, in pairs."""
    table: Rows = []
    for statement, contestant, rivals, allowance in contests:
        for arm, rival in product((contestant, CONTROL), rivals):
            difference = paired(times[arm], allowance * times[rival])
            row = {"quantity": "difference", "statement": statement.id, "arm": arm, "rival": rival}
            table.append(row | summary(difference))
    return table


def contest_claims(contests: Sequence[Contest], setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield the claims of a setting: paired differences of times, the worst of an arm's rivals, and the control in its place."""
    times = part[part["quantity"] == "time"].set_index("arm")
    for statement, arm, rivals, _ in contests:
        differences, arms = part[part["statement"] == statement.id], times.loc[[arm, *rivals]]
        facts = facts_of(arms, {"updates": "estimate", "step": "step"})
        facts["least times at an end of the grid"] = float((~arms["interior"].astype(bool)).sum())
        own, control = (_worst(differences[differences["arm"] == one]) for one in (arm, CONTROL))
        yield statement.claim(setting, own, control, facts=facts)


def _worst(differences: pd.DataFrame) -> Evidence:
    """Return the evidence of the largest difference, the level shared among all."""
    return evidence(differences.loc[highest(differences["estimate"])], 0.0, comparisons=len(differences))
