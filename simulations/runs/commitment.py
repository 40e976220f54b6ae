"""Prompts whose right answer is rare: success in many attempts after a run, compared with the start.

The measure is success in 256 attempts (pass@256) of the prompts below 0.1 at the start, with and without interference between
prompts. The study also asks whether prompts below 1/G are lost. In the controls there is one attempt in place of 256, or rarer
prompts in place of those below 1/G.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import BoundedMean, evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.runs.chosen_steps import choice_variance_of, trained_with_each
from simulations.runs.sized import RESPONSES, WORLDS, best_steps, trained
from simulations.runs.tuning import tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS

RARE = Statement(
    "P6/rare prompts",
    "arXiv 2607.20543",
    "prompts below 0.1 at the start: success in 256 attempts ends lower than it was at the start",
    "ordering",
    measured=True,
)
BOUNDARY = Statement(
    "P6/boundary",
    "question beside arXiv 2607.20543",
    "groups of 8: of prompts between 1/32 and 1/8 at the start, below 1/G, at most a tenth end below a tenth of their start",
    "upper bound",
    whose=OURS,
)
SMALL, LARGE = SIZES = (8, 32)
BUDGET = 8192
ATTEMPTS = 256
LOW = 0.1
"""As in the paper's statement."""
FALLEN = 0.1
"""A prompt whose success has fallen to a tenth takes ten times as many attempts: none that a trainer would make."""
FEW = 0.1
RUNS, QUICK_RUNS = 1024, 64
MEASURES = ("gain in many attempts", "gain in one attempt", "fallen, 1/32 to 1/8", "fallen, below 1/32")


def cells(quick: bool) -> list[Cell]:
    """The world with interference, by two estimators, and its twin without."""
    places = (("small", "grpo"), ("small", "rloo"), ("apart", "grpo"))
    return [Cell({"world": world, "estimator": name, "runs": QUICK_RUNS if quick else RUNS}) for world, name in places]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the rows of an estimator in a world: by group size, what the runs measure."""
    problem, estimator, by_size = WORLDS[settings["world"]].problem(), settings["estimator"], {}
    start = success_rates(problem, problem.theta)
    for size in SIZES:
        seeds = child_seed(seed_of(rng), size)
        steps = best_steps(problem, estimator, size, [BUDGET], child_seed(seeds, 0))[:, 0]

        def ends(step: float, share: int, seed: np.random.SeedSequence, size: int = size) -> Array:
            return trained(problem, estimator, size, step, [BUDGET // RESPONSES], share, seed).theta

        reached = success_rates(problem, trained_with_each(steps, ends, settings["runs"], child_seed(seeds, 1)))
        by_size[size] = float(np.exp(np.log(steps).mean())), _measured(start, reached)
    table = []
    for name in MEASURES:
        added = choice_variance_of([measures[name] for _, measures in by_size.values()])
        for size, (step, measures) in by_size.items():
            table.append({"group_size": size, "measure": name, "step": step} | tuned_summary(measures[name], added))
    return table


def success_rates(problem: gt.Problem, theta: Array) -> Array:
    """Return the success of each prompt, shape (..., M)."""
    return np.asarray((np.exp(problem.policy.log_probabilities(theta)) * problem.bandit.mean_reward).sum(axis=-1))


def _measured(start: Array, end: Array) -> dict[str, Array]:
    """Return by measure its value in each run."""

    def gained(attempts: int) -> Array:
        before, after = (1.0 - (1.0 - rates[..., start < LOW]) ** attempts for rates in (start, end))
        return np.asarray((after - before).mean(axis=-1))

    def fallen(where: Flags) -> Array:
        return np.asarray((end[:, where] < FALLEN * start[where]).mean(axis=-1))

    band = (start >= 1.0 / LARGE) & (start < 1.0 / SMALL)
    values = gained(ATTEMPTS), gained(1), fallen(band), fallen(start < 1.0 / LARGE)
    return dict(zip(MEASURES, values, strict=True))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the rows of the table."""
    common = {"world": settings["world"], "estimator": settings["estimator"]}
    return [common | {"prediction": 0.0} | row for row in results[0]]


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
            yield BOUNDARY.claim(f"{world} ({estimator})", _share(below), _share(rarer), facts=facts)


def _share(row: Mapping[str, Any]) -> BoundedMean:
    """Return the evidence of a share of prompts, whose limits are good where no run has any.

    They are those of runs at the four steps that were chosen, and do not count the choice.
    """
    return BoundedMean(float(row["estimate"]), FEW, float(row["standard_error"]), replications=int(row["replications"]))
