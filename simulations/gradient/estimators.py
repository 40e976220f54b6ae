"""Every registered estimator, a user's own included: error and bias, exact and simulated."""

from typing import Any

import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.evidence import Claim
from simulations.claims import claim
from simulations.gradient.cells import gradient_cells, merge, simulate_and
from simulations.harness.evidence import evidence
from simulations.harness.study import Cell, Rows, Settings, Study

PROBLEMS = ("tabular", "sequence-shared", "lm-few-shot")
GROUP_SIZES = (4, 16, 64)
MARGIN = 0.02


def cells(quick: bool) -> list[Cell]:
    """One cell for each estimator, so that a new kernel adds cells and changes none; not those of trainers."""
    return [
        cell
        for name, estimator in gt.estimators().items()
        if name not in CONVENTIONS
        for cell in gradient_cells(
            [name],
            [size for size in GROUP_SIZES if size >= estimator.advantage.minimum_group_size],
            batch_size=4,
            quick=quick,
            problems=PROBLEMS,
        )
    ]


def predict(settings: Settings) -> dict[str, float | None]:
    """Return the exact error and squared bias; None where enumeration is out of reach."""
    (name,) = settings["estimators"]
    problem = gt.gallery.problem(settings["problem"])
    try:
        law = gt.gradient_law(problem, problem.theta, name, batch_size=settings["batch_size"], group_size=settings["group_size"])
    except gt.NotEnumerableError:
        return {"prediction": None, "squared_bias": None}
    return {"prediction": law.mse, "squared_bias": float(law.bias @ law.bias)}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each cell; prediction and bias are NaN where enumeration is out of reach."""
    (name,) = settings["estimators"]
    simulation = merge(results)
    found = results[0]["prediction"]
    exact = {quantity: float("nan") if value is None else value for quantity, value in found.items()}
    return [
        {
            "problem": settings["problem"],
            "estimator": name,
            "batch_size": settings["batch_size"],
            "group_size": settings["group_size"],
            "squared_bias": exact["squared_bias"],
            "prediction": exact["prediction"],
            "estimate": float(simulation.mse[0]),
            "standard_error": float(simulation.mse_standard_error[0]),
            "replications": simulation.replications,
        }
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The simulated error equals the exact one at G = 4; the control is 5% off."""
    found = []
    for row in table[(table["group_size"] == 4) & table["prediction"].notna()].to_dict("records"):
        own, wrong = (evidence(row, factor * row["prediction"], MARGIN) for factor in (1.0, 1.05))
        found.append(claim("estimator", f"{row['problem']} ({row['estimator']})", own, wrong))
    return found


STUDY = Study(
    "estimators",
    "every registered estimator, yours included: error and bias",
    cells,
    simulate_and(predict),
    rows,
    claims,
    ("estimator",),
)
