"""Every registered estimator, a user's own included: error and bias, exact and simulated."""

from typing import Any

import pandas as pd

import grpo_theory as gt
from grpo_theory.inference import Claim, Evidence
from simulations.gradient_cells import gradient_cells, merge, simulate_chunk
from simulations.study import Cell, Rows, Settings, Study

PROBLEMS = ("tabular", "lm-few-shot")
GROUP_SIZES = (4, 16, 64)
HIDDEN = ("scaled_value", "scaled_optimal")
MARGIN = 0.02


def cells(quick: bool) -> list[Cell]:
    """One cell an estimator, so that a new kernel adds cells and changes none."""
    return [
        cell
        for name, estimator in gt.estimators().items()
        if name not in HIDDEN
        for cell in gradient_cells(
            [name],
            [size for size in GROUP_SIZES if size >= estimator.minimum_group_size],
            batch_size=4,
            quick=quick,
            problems=PROBLEMS,
        )
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row a cell; prediction and bias are NaN where enumeration is out of reach."""
    (name,) = settings["estimators"]
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    try:
        law = gt.gradient_law(problem.bandit, problem.policy, problem.theta, name, **sizes)
        exact = {"prediction": law.mse, "squared_bias": float(law.bias @ law.bias)}
    except gt.NotEnumerableError:
        exact = {"prediction": float("nan"), "squared_bias": float("nan")}
    return [
        {
            "problem": problem.name,
            "estimator": name,
            **sizes,
            **exact,
            "estimate": float(simulation.mse[0]),
            "standard_error": float(simulation.mse_standard_error[0]),
            "replications": simulation.replications,
        }
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The simulated error equals the exact one at G = 4; the control is 5% off."""
    found = []
    for row in table[(table["group_size"] == 4) & table["prediction"].notna()].to_dict("records"):
        evidence, control = (
            Evidence(row["estimate"], factor * row["prediction"], row["standard_error"], MARGIN, row["replications"])
            for factor in (1.0, 1.05)
        )
        statement = "simulated MSE = exact MSE by enumeration, G = 4"
        key = f"estimator/{row['estimator']}"
        found.append(Claim(key, "docs/derivations.md, 4", statement, "equality", row["problem"], evidence, control))
    return found


STUDY = Study("estimators", "every registered estimator, yours included: error and bias", cells, simulate_chunk, rows, claims)
