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
CLAIMED = 4
"""The group size of the claims."""


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
    """Return the exact error, its squared bias, and the error of a broken driver; None where enumeration is out of reach.

    The broken driver draws one prompt too many in every second batch.
    """
    (name,) = settings["estimators"]
    problem = gt.gallery.problem(settings["problem"])
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    try:
        law = gt.gradient_law(problem, problem.theta, name, **sizes)
    except gt.NotEnumerableError:
        return {"prediction": None, "squared_bias": None, "wrong": None}
    found = {"prediction": law.mse, "squared_bias": float(law.bias @ law.bias), "wrong": None}
    if settings["group_size"] == CLAIMED:
        larger = gt.gradient_mse(problem, problem.theta, name, **sizes | {"batch_size": settings["batch_size"] + 1})
        found["wrong"] = 0.5 * (law.mse + larger)
    return found


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
            "wrong": exact["wrong"],
            "prediction": exact["prediction"],
            "estimate": float(simulation.mse[0]),
            "standard_error": float(simulation.mse_standard_error[0]),
            "replications": simulation.replications,
        }
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The simulated error equals the exact one; the control is that of a driver with a prompt too many in half of the batches."""
    found = []
    for row in table[(table["group_size"] == CLAIMED) & table["prediction"].notna()].to_dict("records"):
        own, wrong = (evidence(row, row[law], MARGIN) for law in ("prediction", "wrong"))
        facts = {"wrong law / law": row["wrong"] / row["prediction"]}
        found.append(claim("estimator", f"{row['problem']} ({row['estimator']})", own, wrong, facts=facts))
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
