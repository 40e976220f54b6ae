"""U9: the best group size for a language model's head.

Figure 5 and Table 2 of arXiv 2603.01162 are redone on the head of SmolLM2. The group sizes reported as best are compared with the
gradient's own. The control is the largest group size at the smallest budget, 8 prompts in a batch, which loses ten times as much.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import difference
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.theory import noise_free_path, noise_free_slopes
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.controlled import Guide, collected, losses, objectives_by_group_size
from simulations.training.grid import on_grid

REPORTED_BEST, REPORTED_IN_TABLE_2 = stated("U9/reported", "U9/reported, Table 2")

PROBLEM = "lm-few-shot"
STEP = 0.005
BUDGET = 1024
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 6, 8, 12)
REPORTED = 32
"""Figure 5's best group size, at all its checkpoints but the first."""
TABLE = {1024: 64, 2048: 64, 4096: 128}
"""Table 2's best group size for each budget."""
TABLE_STEPS, OWN = 2, 4
"""The larger budgets are trained for fewer steps, with the reported group size and with that of the gradient's least error."""
TABLE_CHUNKS = 10
CHUNKS, CHUNK_RUNS, QUICK_RUNS = 14, 16, 32


def cells(quick: bool) -> list[Cell]:
    """One cell for Figure 5 and one for each larger budget of Table 2; quick takes three group sizes and one larger budget."""
    sizes, checkpoints = ((OWN, REPORTED, 4 * REPORTED), CHECKPOINTS[:3]) if quick else (GROUP_SIZES, CHECKPOINTS)
    common = {"problem": PROBLEM, "step": STEP, "runs": QUICK_RUNS if quick else CHUNK_RUNS}
    figure = {"budget": BUDGET, "group_sizes": list(sizes), "checkpoints": list(checkpoints)}
    tables = [
        {"budget": budget, "group_sizes": [OWN, TABLE[budget]], "checkpoints": [TABLE_STEPS]}
        for budget in list(TABLE)[1 : 2 if quick else None]
    ]
    return [
        Cell(common | figure, 1 if quick else CHUNKS),
        *(Cell(common | table, 1 if quick else TABLE_CHUNKS) for table in tables),
    ]


@cache
def noise_free_run(name: str, step: float, checkpoints: tuple[int, ...]) -> tuple[gt.Problem, Array, list[Array]]:
    """Return the problem, its noise-free path and the slopes of every checkpoint."""
    problem = gt.gallery.problem(name)
    steps = np.full(checkpoints[-1], step)
    path = noise_free_path(problem, problem.theta, steps)
    return problem, path, [noise_free_slopes(problem, path[: n + 1], steps[:n]) for n in checkpoints]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train with every group size; return the objective and its control, (G, runs, checkpoints)."""
    checkpoints = tuple(settings["checkpoints"])
    problem, _, slopes = noise_free_run(settings["problem"], settings["step"], checkpoints)
    steps = np.full(checkpoints[-1], settings["step"])
    return objectives_by_group_size(problem, [Guide(one) for one in slopes], steps, settings, seed_of(rng))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and group size: the loss against the noise-free run."""
    plain, controlled = collected(results)
    checkpoints, budget = tuple(settings["checkpoints"]), settings["budget"]
    problem, path, _ = noise_free_run(settings["problem"], settings["step"], checkpoints)
    common = {"problem": problem.name, "schedule": f"Constant({settings['step']:g})", "budget": budget, "prediction": np.nan}
    table: Rows = []
    for c, n in enumerate(checkpoints):
        highest, optimum = float(gt.objective(problem, path[n])), gt.group_size_law(problem, path[n]).optimum
        facts = {"checkpoint": n, "noise_free": highest, "gradient_optimum": optimum}
        for size, loss in zip(settings["group_sizes"], losses(plain[:, :, c], controlled[:, :, c], highest), strict=True):
            table.append(common | facts | {"batch_size": budget // size, "group_size": size} | loss)
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The group sizes reported as best against the gradient's own, at every checkpoint and budget."""
    for (budget, checkpoint), part in table.groupby(["budget", "checkpoint"], sort=False):
        at = part.set_index("group_size")
        own = at.loc[on_grid(float(at["gradient_optimum"].iloc[0]), at.index.to_numpy())]
        smallest = table[(table["budget"] == BUDGET) & (table["checkpoint"] == checkpoint)].set_index("group_size")
        control = difference(smallest.loc[smallest.index.max()], own)
        where = f"{PROBLEM}, Constant({STEP:g}), N = {budget}, n = {checkpoint}"
        facts = {"G of the gradient's least error": float(own.name)}
        if budget == BUDGET:
            yield REPORTED_BEST.claim(where, difference(at.loc[REPORTED], own), control, facts=facts)
        if checkpoint == TABLE_STEPS and TABLE[budget] in at.index:
            reported = facts | {"G reported": float(TABLE[budget])}
            yield REPORTED_IN_TABLE_2.claim(where, difference(at.loc[TABLE[budget]], own), control, facts=reported)
