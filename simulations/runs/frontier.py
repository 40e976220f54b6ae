"""P1, P2, P8, U9: the group size of a whole run, for each number of responses spent, over draws of each world.

Each arm trains on every draw at every learning rate of a grid, and is judged at its best rate, one for all draws. The planned
comparison is groups of 64 less groups of 8 at the largest budget; all others stand beside it in the table. The controls are runs
of the largest group size that have hardly begun, and runs at a reckless learning rate. For the law, the control is linear in the
responses.

The grids were chosen from short runs on one draw, which showed where rates are best, before there were other data. A first run of
24 draws left the planned comparison undecided where prompts are few. At the level of the report so did 96 new draws. `ANEW` has
240 draws that were not used before.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.best_rate import lead
from simulations.runs import frontier_statements, frontier_verdicts
from simulations.runs.arms import MEASURES, Arm, train
from simulations.runs.frontier_contrasts import LARGE, Runs, contrasts, contrasts_of_arms, start_of
from simulations.runs.frontier_statements import USUAL
from simulations.runs.growth import SIZES, best_sizes, fit
from simulations.runs.other_worlds import LEARNED, LONG
from simulations.runs.worlds import DRAWS
from simulations.seeds import child_seed, seed_of

STATEMENTS, POWERLESS = frontier_statements.STATEMENTS, frontier_statements.POWERLESS
MANY, FEWER, ADAM = range(2, 10), range(-1, 7), range(-5, 3)
RATES = {"few prompts": FEWER, "wrong rewards": range(8), LONG: range(-2, 6), LEARNED: range(-3, 5)}
RATES |= {"tabular": range(4, 12), "easy": FEWER, "hard": range(3, 11)}
"""The learning rates are these powers of 3, `ADAM` with that optimiser; in other worlds they are `MANY`."""
LONG_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
GROUP_SIZES, COARSE, PAIR = LONG_SIZES[:-1], (4, 8, 16, 64, 256), (2,)
"""Worlds that take long have fewer sizes."""
RUNS = 4
"""On a draw, at a rate: with eight rates they fill the lanes of a vector."""
ARMS: tuple[tuple[Arm, int, Sequence[int]], ...] = (
    *((Arm("few prompts", name), 18, GROUP_SIZES) for name in ("rloo", "grpo")),
    (Arm("few prompts", "dropped"), 15, GROUP_SIZES),
    (Arm("few prompts", "grpo", "Adam"), 16, GROUP_SIZES),
    (Arm("few prompts", "grpo", "SGD", decaying=True), 16, GROUP_SIZES),
    *((Arm("few prompts", "grpo", responses=number), 16, GROUP_SIZES) for number in (64, 1024)),
    *((Arm("shared", name), 16, GROUP_SIZES) for name in ("rloo", "grpo")),
    *((Arm(name), 16, GROUP_SIZES) for name in ("tabular", "easy", "hard")),
    (Arm("wrong rewards"), 16, GROUP_SIZES),
    (Arm("wrong rewards", "rloo"), 16, COARSE),
    *((Arm(world, name), 16, COARSE) for world in (LONG, LEARNED) for name in ("grpo", "rloo")),
    *((Arm(world, responses=32), 13, PAIR) for world in ("few prompts", "shared", "wrong rewards")),
)
"""With each, log2 of the most responses, and its group sizes. Groups of 2 have an eighth of the responses of groups of 16."""
ANEW = tuple((Arm("few prompts", *how), 16, (USUAL, LARGE)) for how in (("rloo",), ("grpo",), ("grpo", "Adam")))
NEW_DRAWS, NAMED_ANEW = range(120, 360), "new draws"
LEAST, LEAST_OF_PAIRS, LEAST_UPDATES = 11, 7, 8


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each arm and group size; quick has two arms, three sizes and few draws."""
    if not quick:
        return cells_of(ARMS) + cells_of(ANEW, NEW_DRAWS)
    [cell] = cells_of([(arm, 14, (4, USUAL, LARGE)) for arm, *_ in ARMS[:2]], range(6))
    arms = [arm | {"rates": arm["rates"][2:7:2]} for arm in cell.settings["arms"]]
    return [Cell(dict(cell.settings) | {"arms": arms}, cell.chunks, shared=True)]


def cells_of(arms: Sequence[tuple[Arm, int, Sequence[int]]], draws: Sequence[int] = range(DRAWS)) -> list[Cell]:
    """Return the cells of arms with log2 of the most responses and group sizes; arms of one world train on the same draws."""
    by_world: dict[str, list[dict[str, Any]]] = {}
    for arm, most, sizes in arms:
        least = LEAST_OF_PAIRS if sizes == PAIR else LEAST
        budgets = [2**power for power in range(least, most + 1) if 2**power >= LEAST_UPDATES * arm.responses]
        rates = [3.0**power for power in (ADAM if arm.optimiser == "Adam" else RATES.get(arm.world, MANY))]
        own = {"group_sizes": [size for size in sizes if size <= arm.responses], "budgets": budgets, "rates": rates}
        by_world.setdefault(arm.world, []).append(arm._asdict() | own)
    return [
        Cell({"arms": own, "draws": list(draws), "runs": RUNS}, sum(len(arm["group_sizes"]) for arm in own), shared=True)
        for own in by_world.values()
    ]


def _arm(settings: Settings) -> Arm:
    return Arm(**{name: settings[name] for name in Arm._fields})


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Any:
    """Train one arm at one group size on all draws; return the means of the runs' measures, (draws, rates, budgets, 6)."""
    own, size = [(arm, size) for arm in settings["arms"] for size in arm["group_sizes"]][chunk]
    arm, seed = _arm(own), seed_of(rng)
    updates = [budget // arm.responses for budget in own["budgets"]]
    return [
        train(arm, draw, size, own["rates"], updates, settings["runs"], child_seed(seed, draw)).mean(axis=1).tolist()
        for draw in settings["draws"]
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return measures and leads by group size and budget, the best sizes and curves through them, and what is judged."""
    found, arms, table = iter(results), {}, []
    named = f", {NAMED_ANEW}" if settings["draws"] == list(NEW_DRAWS) else ""
    for own in settings["arms"]:
        arm = _arm(own)
        start, arm = start_of(arm.world), arm._replace(world=arm.world + named)
        values = np.array([next(found) for _ in own["group_sizes"]])  # (sizes, draws, rates, budgets, measures)
        runs = Runs(own["group_sizes"], own["budgets"], values.transpose(3, 4, 2, 0, 1))
        arms[arm] = runs
        added = _by_size(runs, own["rates"]) + contrasts(arm, runs, start)
        added += _sizes(runs) if len(runs.sizes) > 2 else []
        table += [arm._asdict() | row for row in added]
    table += [] if named else contrasts_of_arms(arms)
    return [{"prediction": np.nan} | row for row in table]


def _by_size(runs: Runs, rates: Sequence[float]) -> Rows:
    """Return the measures of each group size at each budget, at the rate of the most success; and its lead over `USUAL`."""
    table: Rows = []
    for c, budget in enumerate(runs.budgets):
        success = runs.values[c, 0]  # (rates, sizes, draws)
        kept = _may_be_best(success)
        for s, size in enumerate(runs.sizes):
            at = {"group_size": int(size), "budget": int(budget)}
            facts = {"rate": rates[int(success[:, s].mean(axis=-1).argmax())], "in_set": bool(kept[s])}
            for q, measure in enumerate(MEASURES):
                judged = [runs.values[c, q, :, s]] if q else None
                table.append({"quantity": measure} | at | facts | lead([success[:, s]], judged=judged))
            if USUAL in runs.sizes and size != USUAL:
                sides = [success[:, s], runs.at(USUAL, c)]
                table.append({"quantity": f"lead over {USUAL}"} | at | lead(sides, (1.0, -1.0)))
    return table


def _may_be_best(success: Array) -> Array:
    """Return which sizes (k,) no other leads for certain, of success (rates, sizes, draws); Bonferroni's inequality, 95%."""
    sizes = success.shape[1]
    kept = np.ones(sizes, dtype=bool)
    for s, t in combinations(range(sizes), 2):
        row = lead([success[:, s], success[:, t]], (1.0, -1.0))
        critical = stdtrit(row["replications"] - 1, 1.0 - 0.05 / (sizes - 1))
        if abs(row["estimate"]) > critical * row["standard_error"]:
            kept[t if row["estimate"] > 0.0 else s] = False
    return kept


def _sizes(runs: Runs) -> Rows:
    """Log2 of the best group size at each budget, with its error; and the curves through it, with Akaike's criterion."""
    draws = runs.values.shape[-1]
    rng = np.random.default_rng(draws)
    found = np.array([best_sizes(runs.values[c, 0], np.array(runs.sizes), rng) for c in range(len(runs.budgets))])
    x, y = np.log2(runs.budgets), found[:, 0]
    errors = np.maximum(found[:, 1:].std(axis=1, ddof=1), 0.1)  # a parabola through a grid of octaves is no more exact
    table: Rows = [
        {"quantity": "best size", "budget": int(budget), "estimate": one, "standard_error": error, "replications": draws}
        for budget, one, error in zip(runs.budgets, y, errors, strict=True)
    ]
    if len(x) > 5:
        for name, curve in SIZES.items():
            parameters, criterion = fit(curve, x, y, errors)
            table.append({"quantity": "criterion", "curve": name, "estimate": criterion} | EXACT)
            smooth = np.arange(x[0], x[-1] + 0.25, 0.25)
            table += [
                {"quantity": "curve", "curve": name, "budget": round(2.0**place), "estimate": float(value)} | EXACT
                for place, value in zip(smooth, curve.at(smooth, parameters), strict=True)
            ]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge growth with the responses, one size for all, batches, interference, pairs, and the law of success."""
    yield from frontier_verdicts.claims(table)
