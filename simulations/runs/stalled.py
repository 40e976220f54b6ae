"""P5: whether runs that have all but stopped with groups of 16 go on with groups of 512.

All arms go on from the same policies and spend equally many responses, each at its own best learning rate. In the control updates
point the other way.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.kernels import kernel_at
from simulations.runs.arms import measured, quietly, world_problems
from simulations.runs.tuning import choice_variance, tuned, tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS

BRORL = "arXiv 2510.01180 (BroRL)"
AGAIN = Statement(
    "P5",
    BRORL,
    "runs that have spent 131,072 responses in groups of 16 reach more with twice as many in groups of 512 than in groups of 16",
    "ordering",
    measured=True,
)
NOT_BATCH = Statement(
    "P5/as many responses per update",
    f"question beside {BRORL}",
    "the same, where groups of 16 have as many responses per update as groups of 512 have",
    "ordering",
    whose=OURS,
)
WAYS: Mapping[str, tuple[int, int]] = {
    "groups of 16": (16, 256),
    "groups of 512": (512, 8192),
    "groups of 16, large batch": (16, 8192),
    "groups of 2": (2, 256),
    "turned round": (512, 8192),
}
"""How runs go on: the group size, and the responses of an update; the last, the control, goes down the gradient."""
CONTROL = "turned round"
BEFORE, AFTER = 1 << 17, 1 << 18
WORLDS = {"few prompts": (9.0, range(-2, 8)), "shared": (27.0, range(2, 9))}
"""The learning rate before, which pilots on other seeds found best for groups of 16; and the powers of 3 that are tried after."""
TUNING_RUNS, RUNS = 16, 128


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each way to go on; quick has one world, and few short runs."""
    listed = []
    for world, (rate, powers) in list(WORLDS.items())[: 1 if quick else None]:
        sizes = {"before": BEFORE // 8 if quick else BEFORE, "after": AFTER // 8 if quick else AFTER}
        runs = {"runs": 16 if quick else RUNS, "tuning_runs": 8 if quick else TUNING_RUNS}
        rates = {"rate": rate, "rates": [3.0**power for power in (powers[::2] if quick else powers)]}
        listed.append(Cell({"world": world, "ways": list(WAYS)} | sizes | runs | rates, len(WAYS), shared=True))
    return listed


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train with groups of 16, and go on one way at its own best learning rate; return success before and after."""
    world, name = settings["world"], settings["ways"][chunk]
    way, estimator = WAYS[name], kernel_at("turned_mean", 1.0) if name == CONTROL else "grpo"
    problem = world_problems(world)[0]
    before: dict[Any, Array] = {}

    def going_on(rate: float, _: int, runs: int, seed: np.random.SeedSequence) -> Array:
        key = seed.spawn_key
        if key not in before:
            starts, first = np.tile(problem.theta, (runs, 1)), WAYS["groups of 16"]
            before[key] = trained(problem, starts, "grpo", first, settings["rate"], settings["before"], child_seed(seed, 0))
        theta = trained(problem, before[key], estimator, way, rate, settings["after"], child_seed(seed, 1))
        return np.stack([measured(world, each)[:, 0] for each in (theta, before[key])], axis=-1)[:, None]

    rates = settings["rates"]
    if name == CONTROL:  # tuned, it would take the smallest rate, and stay where it is
        rates = rates[-1:]
    found = tuned(going_on, 1, rates, (settings["tuning_runs"], settings["runs"]), seed_of(rng))
    chosen = [rates[place] for place in found.chosen[:, 0]]
    return {"after": found.judged[:, 0, 0].tolist(), "before": found.judged[:, 0, 1].tolist(), "chosen": chosen}


def trained(
    problem: gt.Problem,
    starts: Array,
    estimator: str | gt.Estimator,
    way: tuple[int, int],
    rate: float,
    responses: int,
    seed: np.random.SeedSequence,
) -> Array:
    """Return where an estimator with constant steps takes runs from their starts, shape (R, d)."""
    quietly()
    size, number = way
    runs = gt.simulate_training(
        problem,
        starts,
        estimator,
        gt.Constant(rate),
        batch_size=number // size,
        group_size=size,
        steps=responses // number,
        replications=len(starts),
        rng=seed,
        workers=1,
    )
    return runs.theta


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success before, after, and the difference to groups of 16, run by run: all ways go on from the same policies."""
    after = {way: np.array(one["after"]) for way, one in zip(settings["ways"], results, strict=True)}
    common = {"world": settings["world"], "prediction": np.nan}
    added = choice_variance(np.stack([values for way, values in after.items() if way != CONTROL], axis=1))
    table: Rows = [common | {"way": "", "quantity": "before"} | summary(np.array(results[0]["before"]))]
    for (way, values), one in zip(after.items(), results, strict=True):
        at = common | {"way": way, "rate": float(np.median(one["chosen"]))}
        own = 0.0 if way == CONTROL else added
        table.append(at | {"quantity": "after"} | tuned_summary(values, own))
        for rival in ("groups of 16", "groups of 16, large batch"):
            table.append(at | {"quantity": f"less of {rival}"} | tuned_summary(after[rival] - values, added + own))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Groups of 16 less groups of 512, in small batches and in as large ones; the control goes down."""
    for world, part in table.groupby("world", sort=False):
        by_way = part.set_index(["quantity", "way"])
        success = part[part["quantity"] == "after"].set_index("way")["estimate"]
        facts = {f"success, {way}": float(value) for way, value in success.items()}
        facts["success before"] = float(by_way.loc[("before", ""), "estimate"])
        for statement, rival in ((AGAIN, "groups of 16"), (NOT_BATCH, "groups of 16, large batch")):
            own, control = (evidence(by_way.loc[(f"less of {rival}", way)], 0.0) for way in ("groups of 512", CONTROL))
            yield statement.claim(str(world), own, control, facts=facts)
