"""Every registered estimator, a user's own included: squared error and efficiency, exact and simulated."""

from typing import Any

import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.gradient.cells import gradient_cells, merge, simulate_and

PROBLEMS = ("tabular", "sequence-shared", "lm-few-shot")
GROUP_SIZES = (4, 16, 64)
MARGIN = 0.02
"""An error or an efficiency that is 2% off misleads nobody."""
CLAIMED = {"mse": 4, "efficiency": 64}
"""The group sizes of the claims: where an error depends most on its second order, and where an efficiency has the least noise."""
LEAST = {"mse": 0.0, "efficiency": 0.1}
"""An efficiency below a tenth is a small mean in much noise: to know it to 2% takes millions of batches."""


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


def predict(settings: Settings) -> dict[str, dict[str, float]]:
    """Return error and efficiency, exact and of a broken driver, by quantity; nothing where enumeration is out of reach.

    The broken driver draws one prompt too many in every second batch.
    """
    (name,) = settings["estimators"]
    problem = gt.gallery.problem(settings["problem"])
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    try:
        law = gt.gradient_law(problem, problem.theta, name, **sizes)
    except gt.NotEnumerableError:
        return {}
    larger = gt.gradient_law(problem, problem.theta, name, **sizes | {"batch_size": settings["batch_size"] + 1})
    g = law.true_gradient
    power = 0.5 * (law.power + larger.power)
    return {
        "mse": {"prediction": law.mse, "wrong": 0.5 * (law.mse + larger.mse)},
        "efficiency": {"prediction": law.efficiency, "wrong": float(efficiency_of(g @ law.mean, float(g @ g), power))},
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity of a cell; the predictions are NaN where enumeration is out of reach."""
    (name,) = settings["estimators"]
    simulation = merge(results)
    simulated = {
        "mse": (simulation.mse[0], simulation.mse_standard_error[0]),
        "efficiency": (simulation.efficiency[0], simulation.efficiency_standard_error[0]),
    }
    unknown = {"wrong": float("nan"), "prediction": float("nan")}
    return [
        {
            "problem": settings["problem"],
            "estimator": name,
            "batch_size": settings["batch_size"],
            "group_size": settings["group_size"],
            "quantity": quantity,
            **(results[0]["prediction"].get(quantity) or unknown),
            "estimate": float(estimate),
            "standard_error": float(error),
            "replications": simulation.replications,
        }
        for quantity, (estimate, error) in simulated.items()
    ]


STATEMENTS = {"mse": "estimator", "efficiency": "efficiency/simulated"}


def claims(table: pd.DataFrame) -> list[Claim]:
    """What is simulated equals what is exact; the control is a driver with a prompt too many in half of the batches."""
    found = []
    claimed = table["quantity"].map(CLAIMED) == table["group_size"]
    for row in table[claimed & (table["prediction"] >= table["quantity"].map(LEAST))].to_dict("records"):
        own, wrong = (evidence(row, row[law], MARGIN) for law in ("prediction", "wrong"))
        facts = {"wrong law / law": row["wrong"] / row["prediction"]}
        found.append(claim(STATEMENTS[row["quantity"]], f"{row['problem']} ({row['estimator']})", own, wrong, facts=facts))
    return found


STUDY = unconverted(
    "estimators",
    "every registered estimator, yours included: squared error and efficiency",
    cells,
    simulate_and(predict),
    rows,
    claims,
    tuple(STATEMENTS.values()),
)
