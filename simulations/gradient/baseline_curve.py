"""The variance as a function of the baseline, SmolLM2.

C = t V and C = t b*, exact and simulated: curves that illustrate U6 and R2, which `baselines` decides.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import baseline_trace
from simulations.gradient.cells import errors_of, gradient_cells, merge, simulate_estimators
from simulations.kernels import kernel_at

SCALES = (0.0, 0.5, 1.0, 1.5, 2.0)
GROUP_SIZE = 8
KERNELS = ("scaled_value", "scaled_optimal")


def estimators() -> dict[tuple[str, float], gt.Estimator]:
    """Return the estimators of this study by kernel and scale."""
    return {(kernel, t): kernel_at(kernel, t) for kernel in KERNELS for t in SCALES}


def cells(quick: bool) -> list[Cell]:
    """Two kernels at five scales on the language model's policies."""
    problems = gt.gallery.names("gradient", "language model")
    return gradient_cells(list(estimators().values()), (GROUP_SIZE,), batch_size=1, quick=quick, problems=problems)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Simulate one chunk with every kernel at every scale."""
    return simulate_estimators(settings, list(estimators().values()), rng, chunk)


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each kernel and scale: G times the error, the variance of one response's term."""
    problem, group_size = gt.gallery.problem(settings["problem"]), settings["group_size"]
    moments = gt.moments(problem, problem.theta)
    baselines = {"scaled_value": moments.value, "scaled_optimal": moments.optimal_baseline}
    for (name, t), row in zip(estimators(), errors_of(merge(results), "prompt_mse"), strict=True):
        where = {"problem": problem.name, "group_size": group_size, "baseline": name, "t": t}
        variance = {column: row[column] * group_size for column in ("estimate", "standard_error")}
        exact = float(moments.prompt_weights @ baseline_trace(moments, t * baselines[name]))
        yield row | where | variance | {"prediction": exact}


def claims(table: pd.DataFrame) -> list[Claim]:
    """Nothing is stated here."""
    return []
