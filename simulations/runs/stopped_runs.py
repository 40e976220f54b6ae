"""P4: groups that stop by their own rewards, in whole runs at an equal number of responses.

Groups that grow until they are mixed, and successive halving, are compared with groups of one size. The worlds are those of the
study `allocation`, whose rules set sizes before they sample, and their prompts are drawn anew many times. Every update spends 128
responses. Each rule has the best of a grid of constant steps, one for all draws, and limits count draws and this choice. In the
controls the rule's runs are stopped at a quarter of the responses, or have none.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import objective
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.best_rate import lead
from simulations.runs.allocation_places import CHECKPOINTS, TITLES, WORLDS, rates_of
from simulations.runs.stopped_trainer import RULES as STOPPED
from simulations.runs.stopped_trainer import SPENT, successes
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

MIXED_RUNS, HALVING_RUNS = stated("allocation/stopped, whole runs", "allocation/halving, whole runs")
STATED = {"first mixed": MIXED_RUNS, "halving": HALVING_RUNS}
ARMS = tuple(STOPPED)
DRAWS, RUNS = 128, 2
"""Draws of the prompts, and runs of each."""
QUICK_DRAWS, QUICK_RUNS = 4, 2


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each rule; a quick run has one world and few draws."""
    draws, runs = (QUICK_DRAWS, QUICK_RUNS) if quick else (DRAWS, RUNS)
    common = {"optimiser": "SGD", "arms": list(ARMS), "draws": draws, "runs": runs}
    return [Cell({"world": world} | common, len(ARMS), shared=True) for world in list(WORLDS)[: 1 if quick else None]]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[Any]:
    """Train with one rule; return mean success at the checkpoints by step and draw."""
    world, rule, found = WORLDS[settings["world"]], STOPPED[settings["arms"][chunk]], []
    for draw in range(settings["draws"]):
        own = np.random.default_rng(child_seed(seed_of(rng), draw))
        reached = successes(world.problem(draw), rule, rates_of(settings), CHECKPOINTS, own, settings["runs"])
        found.append(reached.mean(axis=1))
    return np.stack(found, axis=1).tolist()


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success of each rule at the checkpoints, and by how much equal sizes are ahead of it, and of it stopped early."""
    by_arm = {arm: np.array(result) for arm, result in zip(settings["arms"], results, strict=True)}
    problem, rates, equal = WORLDS[settings["world"]].problem(), rates_of(settings), by_arm["equal"]
    start = np.full((1, settings["draws"]), objective(problem, problem.theta))
    table: Rows = []
    for arm, ends in by_arm.items():
        for c, updates in enumerate(CHECKPOINTS):
            own = ends[..., c]
            about = {"world": settings["world"], "rule": arm, "responses": updates * SPENT, "prediction": np.nan}
            about |= {"rate": rates[own.mean(axis=1).argmax()]}
            early = ends[..., 0] if c else start
            table.append(about | {"quantity": "success"} | lead([own]))
            table.append(about | {"quantity": "equal ahead"} | lead([equal[..., c], own], (1.0, -1.0)))
            table.append(about | {"quantity": "equal ahead, stopped early"} | lead([equal[..., c], early], (1.0, -1.0)))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much equal sizes are ahead of each rule's; the control's rule has a quarter of the responses, or none."""
    for (world, responses), part in table.groupby(["world", "responses"], sort=False):
        by = part.set_index(["quantity", "rule"])
        facts = {f"success, {arm}": float(by.loc[("success", arm), "estimate"]) for arm in ARMS}
        for rule, statement in STATED.items():
            own, control = (evidence(by.loc[(f"equal ahead{how}", rule)], 0.0) for how in ("", ", stopped early"))
            yield statement.claim(f"{TITLES[world]}, {responses:,} responses", own, control, facts=facts)
