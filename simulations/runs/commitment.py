"""Prompts whose right answer is rare: success in many attempts after a run, compared with the start.

The measure is success in 256 attempts (pass@256) of the prompts below 0.1 at the start, with and without interference between
prompts. The study also asks whether prompts below 1/G are lost. In the controls there is one attempt in place of 256, or rarer
prompts in place of those below 1/G. Each arm trains at the step of a grid that is best for success on average over draws of the
world, and limits count draws.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.best_rate import lead
from simulations.runs.arms import success_rates
from simulations.runs.sized import RUNS, STEPS, over_draws
from simulations.seeds import seed_of
from simulations.statements import stated

RARE, BOUNDARY = stated("P6/rare prompts", "P6/boundary")
SMALL, LARGE = SIZES = (8, 32)
BUDGET = 8192
ATTEMPTS = 256
LOW = 0.1
"""As in the paper's statement."""
FALLEN = 0.1
"""A prompt whose success has fallen to a tenth takes ten times as many attempts: none that a trainer would make."""
FEW = 0.1
DRAWS, QUICK_DRAWS = 96, 8
MEASURES = ("gain in many attempts", "gain in one attempt", "fallen, 1/32 to 1/8", "fallen, below 1/32")


def cells(quick: bool) -> list[Cell]:
    """The world with interference, by two estimators, and its twin without; one chunk for each group size."""
    places = (("small", "grpo"), ("small", "rloo"), ("apart", "grpo"))
    draws = QUICK_DRAWS if quick else DRAWS
    return [Cell({"world": world, "estimator": name, "draws": draws}, len(SIZES), shared=True) for world, name in places]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[Any]:
    """Return success and the `MEASURES` of runs of a group size, by step and draw."""
    counts = settings["draws"], RUNS
    found = over_draws(settings["world"], settings["estimator"], SIZES[chunk], [BUDGET], counts, seed_of(rng), look=measured)
    return found[:, :, 0].tolist()


def measured(problem: gt.Problem, theta: Array) -> Array:
    """Return the mean success of policies (R, d) and their `MEASURES`, shape (R, 5)."""
    start, end = (success_rates(problem, one) for one in (problem.theta, theta))

    def gained(attempts: int) -> Array:
        before, after = (1.0 - (1.0 - rates[..., start < LOW]) ** attempts for rates in (start, end))
        return np.asarray((after - before).mean(axis=-1))

    def fallen(where: Flags) -> Array:
        return np.asarray((end[:, where] < FALLEN * start[where]).mean(axis=-1))

    band = (start >= 1.0 / LARGE) & (start < 1.0 / SMALL)
    return np.stack([end.mean(axis=-1), gained(ATTEMPTS), gained(1), fallen(band), fallen(start < 1.0 / LARGE)], axis=-1)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return each measure by group size, at the step at which success is best."""
    table: Rows = []
    for size, result in zip(SIZES, results, strict=True):
        success, *measures = np.moveaxis(np.array(result), -1, 0)
        about = {"world": settings["world"], "estimator": settings["estimator"], "group_size": size}
        about |= {"step": STEPS[success.mean(axis=1).argmax()], "prediction": 0.0}
        for name, values in zip(MEASURES, measures, strict=True):
            table.append(about | {"measure": name} | lead([success], judged=[values]))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what many attempts find in the end, and where prompts fall."""
    for (world, estimator), own in table.groupby(["world", "estimator"], sort=False):
        at = own.set_index(["group_size", "measure"])
        facts = {f"{name}, G = {size}": float(row["estimate"]) for (size, name), row in at.iterrows()}
        for size in SIZES:
            many, one = (at.loc[(size, name)] for name in ("gain in many attempts", "gain in one attempt"))
            yield RARE.claim(f"{world} ({estimator}, G = {size})", evidence(many), evidence(one), facts=facts)
        if world != "apart":
            below, rarer = (at.loc[(SMALL, name)] for name in ("fallen, 1/32 to 1/8", "fallen, below 1/32"))
            yield BOUNDARY.claim(f"{world} ({estimator})", evidence(below, FEW), evidence(rarer, FEW), facts=facts)
