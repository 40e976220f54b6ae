"""P5: whether runs that have all but stopped with groups of 16 go on with groups of 512.

In each draw of a world all arms go on from the same policies and spend equally many responses. Each has the best learning rate of
those tried. In the control updates point the other way.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.simulate.draw.streams import block_streams
from grpo_theory.simulate.training import finite_objectives
from grpo_theory.simulate.training_blocks import TrainingBlocks
from grpo_theory.simulate.update.trace import NO_TRACE
from simulations.best_rate import LEAD_FACTS, lead
from simulations.kernels import kernel_at
from simulations.runs.worlds import WORLDS
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

AGAIN, NOT_BATCH = stated("P5", "P5/as many responses per update")
WAYS: Mapping[str, tuple[int, int]] = {
    "groups of 16": (16, 256),
    "groups of 512": (512, 8192),
    "groups of 16, large batch": (16, 8192),
    "turned round": (512, 8192),
}
"""How runs go on: the group size, and the responses of an update; the last, the control, goes down the gradient."""
CONTROL, TURNED = "turned round", kernel_at("turned_mean", 1.0)
BEFORE, AFTER = 1 << 17, 1 << 18
RATES = {"few prompts": (9.0, range(-2, 8), 3), "shared": (27.0, range(0, 8), 4)}
"""The learning rate before, the powers of 3 that are tried after, and the runs on each draw.

Pilots on other seeds found the rate before best for groups of 16. Runs at all rates fill a vector. With many prompts the grid
began at 9 at first. Groups of 512 had their best rate there, so that it was moved down.
"""
DRAWS, QUICK_DRAWS, CHUNKS = 32, 4, 8
"""Draws are numbers 0 to 31, split into chunks. A first run had 24 draws."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for some draws; quick has one world, and few short runs on few draws."""
    share, chunks = (8, 1) if quick else (1, CHUNKS)
    sizes = {"draws": QUICK_DRAWS if quick else DRAWS, "before": BEFORE // share, "after": AFTER // share, "chunks": chunks}
    listed = []
    for world, (rate, powers, runs) in list(RATES.items())[: 1 if quick else None]:
        rates = {"rate": rate, "rates": [3.0**power for power in powers], "runs": runs}
        listed.append(Cell({"world": world} | rates | sizes, chunks, shared=True))
    return listed


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train with groups of 16 on some draws, and go on each way at each rate; return success before, and after by way (L, D)."""
    before: list[float] = []
    after: dict[str, list[Array]] = {name: [] for name in WAYS}
    for draw in np.array_split(np.arange(settings["draws"]), settings["chunks"])[chunk].tolist():
        problem, seed = WORLDS[settings["world"]].problem(draw), child_seed(seed_of(rng), draw)
        starts, first = np.tile(problem.theta, (settings["runs"], 1)), WAYS["groups of 16"]
        reached = trained(problem, starts, "grpo", first, [settings["rate"]], settings["before"], child_seed(seed, 0))[0]
        before.append(float(success(problem, reached).mean()))
        for name, way in WAYS.items():
            estimator = TURNED if name == CONTROL else "grpo"
            theta = trained(problem, reached, estimator, way, settings["rates"], settings["after"], child_seed(seed, 1))
            after[name].append(success(problem, theta).mean(axis=1))
    return {"before": before, "after": {name: np.stack(own, axis=-1).tolist() for name, own in after.items()}}


def success(problem: gt.Problem, theta: Array) -> Array:
    """Return the mean success rate of policies (..., d); 0 for a run that diverged."""
    return np.nan_to_num(finite_objectives(problem, theta))


def trained(
    problem: gt.Problem,
    starts: Array,
    estimator: str | gt.Estimator,
    way: tuple[int, int],
    rates: list[float],
    responses: int,
    seed: np.random.SeedSequence,
) -> Array:
    """Return where an estimator takes runs from their starts (R, d) at constant rates (L,) side by side, shape (L, R, d)."""
    size, number = way
    largest, steps = max(rates), responses // number
    sizes = number // size, size, 1
    etas, found = np.full(steps, largest), gt.estimation.find(estimator)
    blocks = TrainingBlocks.of(problem, found, etas, sizes, optimiser=gt.SGD(), side_by_side=True)
    factors, all_starts = np.array(rates) / largest, np.tile(starts, (len(rates), 1))
    with blocks.start_side_by_side(factors, block_streams(seed, 0), all_starts, NO_TRACE) as runs:
        runs.advance(steps)
        return runs.theta.reshape(len(rates), *starts.shape)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success before, after, and the lead of groups of 16: in each draw all ways go on from the same policies."""
    after = {way: np.concatenate([one["after"][way] for one in results], axis=-1) for way in WAYS}
    # At its best rate the control would take the smallest one, and stay where it is.
    after[CONTROL] = after[CONTROL][-1:]
    common = {"world": settings["world"], "prediction": np.nan}
    before = np.concatenate([one["before"] for one in results])
    table: Rows = [common | {"way": "", "quantity": "before"} | summary(before)]
    for way, own in after.items():
        rates = settings["rates"][-len(own) :]
        at = common | {"way": way, "rate": rates[own.mean(axis=-1).argmax()]}
        table.append(at | {"quantity": "after"} | lead([own]))
        for rival in ("groups of 16", "groups of 16, large batch"):
            table.append(at | {"quantity": f"less of {rival}"} | lead([after[rival], own], (1.0, -1.0)))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Groups of 16 less groups of 512, in small batches and in as large ones; the control goes down."""
    for world, part in table.groupby("world", sort=False):
        by_way = part.set_index(["quantity", "way"])
        success = part[part["quantity"] == "after"].set_index("way")["estimate"]
        facts = {f"success, {way}": float(value) for way, value in success.items()}
        facts["success before"] = float(by_way.loc[("before", ""), "estimate"])
        for statement, rival in ((AGAIN, "groups of 16"), (NOT_BATCH, "groups of 16, large batch")):
            less, broken = (by_way.loc[(f"less of {rival}", way)] for way in ("groups of 512", CONTROL))
            of_lead = {fact: float(less[column]) for column, fact in LEAD_FACTS.items()}
            yield statement.claim(str(world), evidence(less, 0.0), evidence(broken, 0.0), facts=facts | of_lead)
