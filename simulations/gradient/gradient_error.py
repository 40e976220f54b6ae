"""U3 to U5: simulated errors against the exact law.

The error of each estimator is simulated at G = 4 to 64. It is judged at G = 4, where the second-order term is largest. In the
control the prediction leaves that term out.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.cells import differences_of, errors_of, gradient_cells, merge, simulate_estimators
from simulations.statements import stated

PROMPT, BATCH, DIFFERENCE = stated("U3/simulated", "U4/simulated", "U5/simulated")

ESTIMATORS = ("reinforce", "oracle", "rloo", "dr_grpo", "grpo")
GROUP_SIZES = (4, 8, 16, 32, 64)


def cells(quick: bool) -> list[Cell]:
    """Every problem at every group size; quick takes every other one, and fewer batches of the larger groups."""
    return gradient_cells(ESTIMATORS, GROUP_SIZES[::2] if quick else GROUP_SIZES, batch_size=4, quick=quick)


def predict(settings: Settings) -> dict[str, Any]:
    """Return the constants of the error law, and by quantity each estimator's exact errors and the difference of two."""
    problem = gt.gallery.problem(settings["problem"])
    b, g = settings["batch_size"], settings["group_size"]
    law = gt.group_size_law(problem, problem.theta)
    exact = {name: gt.gradient_law(problem, problem.theta, name, batch_size=b, group_size=g) for name in settings["estimators"]}
    errors = {name: {"mse": one.mse, "prompt_mse": one.prompt_mse} for name, one in exact.items()}
    second_order = law.c3 / (g * (g - 1))
    errors["rloo - oracle"] = {"mse": second_order / b, "prompt_mse": second_order}
    return {"constants": {"c1": law.c1, "c2": law.c2, "c3": law.c3}, "errors": errors}


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Simulate one chunk; with the first goes what is exact."""
    drawn = simulate_estimators(settings, settings["estimators"], rng, chunk)
    return drawn | {"prediction": predict(settings) if chunk == 0 else None}


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """Two rows for each estimator, the error of the batch and that of one prompt, and the paired difference of two."""
    simulation, exact, quantities = merge(results), results[0]["prediction"], ("mse", "prompt_mse")
    common = {name: settings[name] for name in ("problem", "batch_size", "group_size")} | exact["constants"]
    difference = differences_of(simulation, [("rloo", "oracle")], *quantities)
    for row in (*errors_of(simulation, *quantities), *difference):
        yield common | row | {"prediction": exact["errors"][row["estimator"]][row["quantity"]]}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off the equalities at G = 4."""
    at = table[table["group_size"] == 4].set_index(["problem", "quantity", "estimator"])
    for problem in table["problem"].unique():
        batch, prompt, difference = (
            at.loc[(problem, *which)] for which in (("mse", "rloo"), ("prompt_mse", "rloo"), ("mse", "rloo - oracle"))
        )
        leading = (batch["c1"] + batch["c2"] / 4) / batch["batch_size"]
        for statement, row, wrong in ((PROMPT, prompt, prompt["c2"] / 4), (BATCH, batch, leading), (DIFFERENCE, difference, 0.0)):
            yield statement.claim(problem, evidence(row), evidence(row, wrong))
