"""U3 to U5 by simulation: the error of each estimator against its exact prediction, G = 4..64."""

from typing import Any

import pandas as pd

import grpo_theory as gt
from grpo_theory.inference import Claim, Evidence
from simulations.gradient_cells import gradient_cells, merge, simulate_chunk
from simulations.study import Cell, Rows, Settings, Study

SOURCE = "arXiv 2603.01162"
ESTIMATORS = ("reinforce", "oracle", "rloo", "dr_grpo", "grpo")
GROUP_SIZES = (4, 8, 16, 32, 64)
MARGIN = 0.02


def cells(quick: bool) -> list[Cell]:
    """Every problem at every group size; quick takes every other one, and fewer batches of the larger groups."""
    return gradient_cells(ESTIMATORS, GROUP_SIZES[::2] if quick else GROUP_SIZES, batch_size=4, quick=quick)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Two rows an estimator, the error of the batch and the error per prompt, and the paired difference of two."""
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    where = (problem.bandit, problem.policy, problem.theta)
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    law = gt.group_size_law(*where)
    common = {"problem": problem.name, **sizes, "replications": simulation.replications}
    common |= {"c1": law.c1, "c2": law.c2, "c3": law.c3}
    found = []
    for i, name in enumerate(simulation.estimators):
        exact = gt.gradient_law(*where, name, **sizes)
        for quantity, prediction, estimate, error in (
            ("mse", exact.mse, simulation.mse[i], simulation.mse_standard_error[i]),
            ("prompt_mse", exact.prompt_mse, simulation.prompt_mse[i], simulation.prompt_mse_standard_error[i]),
        ):
            found.append(
                common
                | {
                    "estimator": name,
                    "quantity": quantity,
                    "prediction": prediction,
                    "estimate": float(estimate),
                    "standard_error": float(error),
                }
            )
    b, g = sizes["batch_size"], sizes["group_size"]
    second_order = law.c3 / (g * (g - 1))
    for quantity, prediction, (estimate, error) in (
        ("mse", second_order / b, simulation.mse_difference("rloo", "oracle")),
        ("prompt_mse", second_order, simulation.prompt_mse_difference("rloo", "oracle")),
    ):
        row = {"estimator": "rloo - oracle", "quantity": quantity, "prediction": prediction}
        found.append(common | row | {"estimate": estimate, "standard_error": error})
    return found


def _evidence(row: pd.Series, prediction: float, margin: float) -> Evidence:
    return Evidence(
        estimate=float(row["estimate"]),
        prediction=prediction,
        standard_error=float(row["standard_error"]),
        margin=margin,
        replications=int(row["replications"]),
    )


def claims(table: pd.DataFrame) -> list[Claim]:
    """Equalities at G = 4, where the second-order term is largest; the controls leave that term out or misplace it."""
    found = []
    part = table[table["group_size"] == 4].set_index(["problem", "quantity", "estimator"])
    for problem in table["problem"].unique():
        batch = part.loc[(problem, "mse", "rloo")]
        prompt = part.loc[(problem, "prompt_mse", "rloo")]
        difference = part.loc[(problem, "mse", "rloo - oracle")]
        b, g = int(batch["batch_size"]), 4
        leading = (batch["c1"] + batch["c2"] / g) / b
        statements = (
            ("U3/simulated", "simulated E MSE(x) = exact law, G = 4", prompt, prompt["c2"] / g),
            ("U4/simulated", "simulated MSE = exact law, G = 4", batch, leading),
            ("U5/simulated", "simulated MSE(leave-one-out) - MSE(oracle) = c3/(BG(G-1)), G = 4", difference, 0.0),
        )
        for key, statement, row, wrong in statements:
            margin = MARGIN if row is not difference else 3.0 * MARGIN
            evidence, control = (_evidence(row, value, margin) for value in (float(row["prediction"]), float(wrong)))
            found.append(Claim(key, f"{SOURCE}, Thm 2 to Cor. 4", statement, "equality", problem, evidence, control))
    return found


STUDY = Study("gradient_error", "U3 to U5: simulated errors against the exact law", cells, simulate_chunk, rows, claims)
