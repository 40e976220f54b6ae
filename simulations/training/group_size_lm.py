"""U9 on a language model: Figure 5 of arXiv 2603.01162 on the head of SmolLM2."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.intervals import best_set
from grpo_theory.theory import noise_free_path, noise_free_slopes
from simulations.claims import claim
from simulations.harness.evidence import difference
from simulations.harness.study import Cell, Rows, Settings, Study
from simulations.training.controlled import Guide, collected, objectives_by_group_size
from simulations.training.grid import on_grid

PROBLEM = "lm-few-shot"
STEP = 0.005
BUDGET = 1024
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 6, 8, 12)
REPORTED = 32
CHUNKS, CHUNK_RUNS, QUICK_RUNS = 8, 16, 32


def cells(quick: bool) -> list[Cell]:
    """One cell, all group sizes; quick takes three, for fewer steps."""
    sizes, checkpoints = ((4, REPORTED, 4 * REPORTED), CHECKPOINTS[:3]) if quick else (GROUP_SIZES, CHECKPOINTS)
    settings = {"problem": PROBLEM, "step": STEP, "budget": BUDGET, "group_sizes": list(sizes)}
    settings |= {"checkpoints": list(checkpoints), "runs": QUICK_RUNS if quick else CHUNK_RUNS}
    return [Cell(settings, 1 if quick else CHUNKS)]


@cache
def noise_free_run(name: str, step: float, checkpoints: tuple[int, ...]) -> tuple[gt.Problem, Array, list[Array]]:
    """Return the problem, its noise-free path and the slopes of every checkpoint."""
    problem = gt.gallery.problem(name)
    steps = np.full(checkpoints[-1], step)
    path = noise_free_path(problem, problem.theta, steps)
    return problem, path, [noise_free_slopes(problem, path[: n + 1], steps[:n]) for n in checkpoints]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train with every group size; return the objective and its control, (G, runs, checkpoints)."""
    checkpoints = tuple(settings["checkpoints"])
    problem, _, slopes = noise_free_run(settings["problem"], settings["step"], checkpoints)
    return objectives_by_group_size(
        problem, [Guide(found) for found in slopes], np.full(checkpoints[-1], settings["step"]), settings, seed, chunk
    )


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and group size: the loss against the noise-free run."""
    plain, controlled = collected(results)
    checkpoints, budget, runs = tuple(settings["checkpoints"]), settings["budget"], controlled.shape[1]
    problem, path, _ = noise_free_run(settings["problem"], settings["step"], checkpoints)
    common = {"problem": problem.name, "schedule": f"Constant({settings['step']:g})", "budget": budget, "replications": runs}
    found = []
    for c, n in enumerate(checkpoints):
        law = gt.group_size_law(problem, path[n])
        highest = float(gt.objective(problem, path[n]))
        kept = best_set(controlled[:, :, c].T)
        for g, size in enumerate(settings["group_sizes"]):
            sample = controlled[g, :, c]
            row = {
                "checkpoint": n,
                "batch_size": budget // size,
                "group_size": size,
                "noise_free": highest,
                "gradient_optimum": law.optimum,
                "estimate": float(highest - sample.mean()),
                "standard_error": float(sample.std(ddof=1) / np.sqrt(runs)),
                "plain_standard_error": float(plain[g, :, c].std(ddof=1) / np.sqrt(runs)),
                "prediction": float("nan"),
                "in_set": bool(kept[g]),
            }
            found.append(common | row)
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """The group size reported as best against the gradient's own, at the last checkpoint; the control takes four times it."""
    checkpoint = table["checkpoint"].max()
    part = table[table["checkpoint"] == checkpoint].set_index("group_size")
    own = on_grid(float(part["gradient_optimum"].iloc[0]), part.index.to_numpy())
    where = f"{PROBLEM}, Constant({STEP:g}), N = {BUDGET}, n = {checkpoint}"
    facts = {"G of the gradient's least error": float(own)}
    both = (difference(part.loc[size], part.loc[own]) for size in (REPORTED, 4 * REPORTED))
    return [claim("U9/reported", where, *both, facts=facts)]


STUDY = Study(
    "group_size_lm",
    "U9: the best group size for a language model's head",
    cells,
    compute,
    rows,
    claims,
    ("U9/reported",),
)
