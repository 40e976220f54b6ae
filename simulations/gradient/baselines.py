"""U6, R2: no baseline, V, b*, and their leave-one-out twins.

Every problem is simulated, and the variances are compared by differences of estimators on the same draws. In one control the mean
is added instead of subtracted, which is worse than no baseline for V > 0. In the other the baseline is one reward too high: its
error exceeds that of b* by E||W||^2/G.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.gradient.baseline_statements import VANILLA_4, VANILLA_64, assumption_facts, correlations
from simulations.gradient.cells import differences_of, errors_of, gradient_cells, merge, simulate_estimators
from simulations.kernels import kernel_at
from simulations.statements import stated

BEST, PLUG_IN_4, PLUG_IN_64 = stated("R2", "R2/plug-in, G=4", "R2/plug-in, G=64")

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
GROUP_SIZES = (4, 64)
COMPARISONS = (
    (VANILLA_4, 4, "rloo", "reinforce"),
    (VANILLA_64, 64, "rloo", "reinforce"),
    (BEST, 64, "optimal", "oracle"),
    (PLUG_IN_4, 4, "optimal_loo", "rloo"),
    (PLUG_IN_64, 64, "optimal_loo", "rloo"),
)
"""Statement, group size, and the estimator that it says is at most as noisy as another."""
MEAN_ADDED = kernel_at("scaled_mean", -1.0, "mean added")
ONE_TOO_HIGH = kernel_at("shifted_optimal", 1.0, "b* + 1")
MISTAKEN = {"rloo": MEAN_ADDED, "optimal": ONE_TOO_HIGH, "optimal_loo": ONE_TOO_HIGH}
"""What replaces the first in the broken comparisons."""
PAIRS = tuple(
    dict.fromkeys(pair for *_, first, second in COMPARISONS for pair in ((first, second), (MISTAKEN[first].name, second)))
)


def estimators() -> list[str | gt.Estimator]:
    """Return what is simulated, on the same draws: the registered estimators, and those of the controls."""
    return [*ESTIMATORS, MEAN_ADDED, ONE_TOO_HIGH]


def cells(quick: bool) -> list[Cell]:
    """Every problem at a small and at a large group."""
    return gradient_cells(estimators(), GROUP_SIZES, batch_size=4, quick=quick)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Simulate one chunk."""
    return simulate_estimators(settings, estimators(), rng, chunk)


def exact_errors(moments: gt.Moments, group_size: int) -> dict[str, float]:
    """Return the errors for each prompt on average, and the differences of pairs, that have a closed form."""
    traces = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
        ONE_TOO_HIGH.name: baseline_trace(moments, moments.optimal_baseline + 1.0) / group_size,
    }
    errors = {name: float(moments.prompt_weights @ trace) for name, trace in traces.items()}
    known = [pair for pair in PAIRS if set(pair) <= set(errors)]
    return errors | {f"{first} - {second}": errors[first] - errors[second] for first, second in known}


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each estimator and one for each paired difference, with the assumption's measures on each."""
    simulation, problem = merge(results), gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)
    common = {name: settings[name] for name in ("problem", "batch_size", "group_size")}
    common |= {
        "value": float(moments.prompt_weights @ moments.value),
        "break_even": break_even_group_size(moments),
        **correlations(moments),
    }
    exact = exact_errors(moments, settings["group_size"])
    for row in (*errors_of(simulation, "prompt_mse"), *differences_of(simulation, PAIRS, "prompt_mse")):
        yield common | row | {"prediction": exact.get(row["estimator"], float("nan"))}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read the comparisons off the table, as paired differences."""
    at = table.set_index(["problem", "group_size", "estimator"]).sort_index()
    for problem in table["problem"].unique():
        for statement, size, first, second in COMPARISONS:
            own, broken = (at.loc[problem, size, f"{name} - {second}"] for name in (first, MISTAKEN[first].name))
            yield statement.claim(problem, evidence(own, 0.0), evidence(broken, 0.0), assumption_facts(own))
