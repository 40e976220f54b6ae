"""P3, P4: responses shared out among prompts, in whole runs at an equal number of responses, over draws of two worlds.

Each rule has the best constant step of those tried, the same for all draws. Rules see the same draws. In the control the rule's
runs are stopped at a quarter of the responses.
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
from grpo_theory.simulate.allocation.blocks import AllottedBlocks
from grpo_theory.simulate.step_grid import StepGrid
from grpo_theory.simulate.training_blocks import TrainingBlocks
from simulations.best_rate import LEAD_FACTS, lead
from simulations.runs.allocation_places import BATCH, CHECKPOINTS, GROUP, RATES, RULES, TITLES, WORLDS, rates_of
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

VIP_RUNS, START_RUNS, SEEN_RUNS = stated("P3/whole runs", "P3/whole runs, rates of the start", "P3/whole runs, seen rates")
SGPO_RUNS, DYNAMO_RUNS, ERROR_DECIDES = stated("P4/sGPO, whole runs", "P4/DynaMO, whole runs", "allocation/error decides")
ERROR_DECIDES_NOW = stated("allocation/error decides, rates of now")

ESTIMATOR = gt.estimators()["rloo"]
OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
DRAWS, QUICK_DRAWS, RUNS = 72, 6, 2
"""Draws of a world, numbers 0 to 71, and runs on each.

First runs had 48 draws of four runs, and 40 of six. At equal cost the report's limits are narrower with more draws.
"""
AGAINST_EQUAL = {
    "vip": VIP_RUNS,
    "vip_seen": SEEN_RUNS,
    "vip, start": START_RUNS,
    "dynamo": DYNAMO_RUNS,
    "sgpo": SGPO_RUNS,
}
RARE_FIRST = {"sgpo": ERROR_DECIDES, "sgpo, now": ERROR_DECIDES_NOW}
POWERLESS = {
    (
        statement.id,
        "shared features, *, 8,192 responses",
    ): "where prompts share features sizes as 1/p are so far behind that, at so "
    "many draws, they are not certainly ahead of the sizes of least error after a quarter of the responses"
    for statement in RARE_FIRST.values()
}


def cells(quick: bool) -> list[Cell]:
    """One cell for each world and optimiser; a quick run has one, and few draws."""
    sizes = {"draws": QUICK_DRAWS if quick else DRAWS, "runs": RUNS}
    return [Cell({"world": world, "optimiser": name} | sizes) for world, name in list(RATES)[: 1 if quick else None]]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train with each rule at each learning rate; return the mean success of each draw's runs, and that of its start."""
    world, optimiser, steps = WORLDS[settings["world"]], OPTIMISERS[settings["optimiser"]], np.ones(CHECKPOINTS[-1])
    found: dict[str, list[Array]] = {name: [] for name in RULES}
    starts = []
    for draw in range(settings["draws"]):
        problem, seed = world.problem(draw), child_seed(seed_of(rng), draw)
        starts.append(float(gt.objective(problem, problem.theta)))
        for name, rule in RULES.items():
            sizes = BATCH, rule.high, 1
            blocks = TrainingBlocks.of(problem, ESTIMATOR, steps, sizes, optimiser=optimiser, side_by_side=True)
            allotted = AllottedBlocks.by_rule(blocks, rule, BATCH * GROUP)
            runs = StepGrid(allotted, rates_of(settings), keeps=False).objectives(settings["runs"], seed, CHECKPOINTS)
            found[name].append(np.nan_to_num(runs).mean(axis=1))
    return {"start": starts, "success": {name: np.stack(own, axis=-1).tolist() for name, own in found.items()}}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success of each rule at the checkpoints, and by how much equal sizes, and sizes as 1/p, are ahead of it."""
    (run,) = results
    success = {name: np.array(own) for name, own in run["success"].items()}  # (rates, checkpoints, draws)
    common = {"world": settings["world"], "optimiser": settings["optimiser"], "prediction": np.nan}
    table: Rows = []
    for name, own in success.items():
        for c, updates in enumerate(CHECKPOINTS):
            about = common | {"rule": name, "responses": updates * BATCH * GROUP}
            about |= {"rate": rates_of(settings)[own[:, c].mean(axis=-1).argmax()]}
            table.append(about | {"quantity": "success"} | lead([own[:, c]]))
            early = own[:, 0] if c else np.array([run["start"]])
            for rival in ("uniform", *RARE_FIRST):
                for quantity, side in ((f"{rival} ahead", own[:, c]), (f"{rival} ahead, stopped early", early)):
                    table.append(about | {"quantity": quantity} | lead([success[rival][:, c], side], (1.0, -1.0)))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much equal sizes are ahead of each rule's at the end; the control's rule has a quarter of the responses, or none."""
    for (world, name, responses), part in table.groupby(["world", "optimiser", "responses"], sort=False):
        by = part.set_index(["quantity", "rule"])
        where = f"{TITLES[world]}, {name}, {responses:,} responses"

        def told(statement: Statement, rival: str, rule: str, by: pd.DataFrame = by, where: str = where) -> Claim:
            own, control = (
                evidence(by.loc[(quantity, rule)].to_dict(), 0.0)
                for quantity in (f"{rival} ahead", f"{rival} ahead, stopped early")
            )
            facts = {f"success, {one}": by.loc[("success", one), "estimate"] for one in (rival, rule)}
            facts |= {f"rate, {one}": by.loc[("success", one), "rate"] for one in (rival, rule)}
            facts |= {fact: float(by.loc[(f"{rival} ahead", rule), column]) for column, fact in LEAD_FACTS.items()}
            return statement.claim(where, own, control, facts=facts)

        for rule, statement in AGAINST_EQUAL.items():
            yield told(statement, "uniform", rule)
        for rival, statement in RARE_FIRST.items():
            yield told(statement, rival, "neyman")
