"""T8 for one token: without a ratio, the updates that a rollout serves are one large update on all of it, exactly."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.claims import unconverted
from simulations.identities import gap_claims, gap_rows

PROBLEMS = ("tabular", "linear", "mixed", "conflict")
ESTIMATORS = ("dr_grpo", "rloo", "grpo", "reinforce")
"""Three whose advantages add up to 0 in every group; those of the last, the control, do not."""
INNER_STEPS, ROLLOUTS, STEP = 8, 16, 0.5
BATCH_SIZE, GROUP_SIZE, RUNS = 16, 4, 64


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; an identity on every path, so quick is no different."""
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "runs": RUNS}
    return [Cell({"problem": name, "inner_steps": INNER_STEPS, "rollouts": ROLLOUTS, "step": STEP} | sizes) for name in PROBLEMS]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Return, for each estimator, the largest difference of the parameters between the two ways over all runs."""
    problem, inner, found = gt.gallery.problem(settings["problem"]), settings["inner_steps"], {}
    for name in ESTIMATORS:
        many, one = (
            gt.simulate_training(
                problem,
                problem.theta,
                name,
                gt.Constant(settings["step"] * inner / updates),
                batch_size=settings["batch_size"],
                group_size=settings["group_size"],
                steps=settings["rollouts"] * updates,
                inner_steps=updates,
                replications=settings["runs"],
                rng=seed,
                workers=1,
            ).theta
            for updates in (inner, 1)
        )
        found[name] = float(np.abs(many - one).max())
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each estimator."""
    common = {name: settings[name] for name in ("problem", "inner_steps", "rollouts", "batch_size", "group_size")}
    return gap_rows(common, "estimator", results[0])


def claims(table: pd.DataFrame) -> list[Claim]:
    """One claim for each estimator and problem; the control's advantages have no mean subtracted."""
    *centred, broken = ESTIMATORS
    return gap_claims(table, "estimator", (("T8/one token", name, broken) for name in centred), "{problem} ({own})")


STUDY = unconverted(
    "one_large_step",
    "T8: inner updates without a ratio against one large update, one token",
    cells,
    compute,
    rows,
    claims,
    ("T8/one token",),
)
