"""Every registered estimator, yours included: squared error and efficiency.

Both are simulated, and exact by enumeration where that is in reach. In the control the driver draws one prompt too many in every
second batch.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.cells import errors_of, gradient_cells, merge, simulate_estimators
from simulations.statements import stated

ERROR, EFFICIENCY, SIMULATED = stated("estimator", "efficiency", "efficiency/simulated")

PROBLEMS = ("tabular", "sequence-shared", "lm-few-shot")
GROUP_SIZES = (4, 16, 64)
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
    """Return error and efficiency, exact and of a broken driver, by quantity; nothing where enumeration is out of reach."""
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


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Simulate one chunk; with the first goes what is exact."""
    drawn = simulate_estimators(settings, settings["estimators"], rng, chunk)
    return drawn | {"prediction": predict(settings) if chunk == 0 else None}


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity of a cell; the predictions are NaN where enumeration is out of reach."""
    common = {name: settings[name] for name in ("problem", "batch_size", "group_size")}
    unknown = {"wrong": float("nan"), "prediction": float("nan")}
    for row in errors_of(merge(results), *CLAIMED):
        yield common | row | results[0]["prediction"].get(row["quantity"], unknown)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """What is simulated equals what is exact, of each estimator on each problem."""
    claimed = table["quantity"].map(CLAIMED) == table["group_size"]
    for row in table[claimed & (table["prediction"] >= table["quantity"].map(LEAST))].to_dict("records"):
        statement = ERROR if row["quantity"] == "mse" else SIMULATED
        facts = {"wrong law / law": row["wrong"] / row["prediction"]}
        yield statement.claim(f"{row['problem']} ({row['estimator']})", evidence(row), evidence(row, row["wrong"]), facts)
