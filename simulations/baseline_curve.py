"""The variance as a function of the baseline, on the language model: C = t V and C = t b*, exact and simulated."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.inference import Claim
from grpo_theory.theory import baseline_trace
from simulations.gradient_cells import gradient_cells, merge, simulate_estimators
from simulations.study import Cell, Rows, Settings, Study

SCALES = (0.0, 0.5, 1.0, 1.5, 2.0)
GROUP_SIZE = 8


@gt.estimator("scaled_value", parameters={"t": 1.0})
def scaled_value(batch, advantages):
    """A = Z - t V(x)."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * batch.values[b]


@gt.estimator("scaled_optimal", parameters={"t": 1.0})
def scaled_optimal(batch, advantages):
    """A = Z - t b*(x)."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * batch.optimal_baselines[b]


def cells(quick: bool) -> list[Cell]:
    """Two kernels at five scales on the language model's policies."""
    problems = [name for name in gt.gallery.names() if name.startswith("lm-")]
    names = [f"{kernel}@{t}" for kernel in ("scaled_value", "scaled_optimal") for t in SCALES]
    return gradient_cells(names, (GROUP_SIZE,), batch_size=1, quick=quick, problems=problems)


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Simulate one chunk with every kernel at every scale."""
    chosen = []
    for entry in settings["estimators"]:
        name, t = entry.split("@")
        chosen.append(gt.estimators()[name].with_parameters(t=float(t)))
    return simulate_estimators(settings, chosen, seed, chunk)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row a kernel and scale: G times the error per prompt, the variance of one response's term."""
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    exact = gt.moments(problem.bandit, problem.policy, problem.theta)
    baselines = {"scaled_value": exact.value, "scaled_optimal": exact.optimal_baseline}
    found = []
    for i, entry in enumerate(settings["estimators"]):
        name, t = entry.split("@")
        found.append(
            {
                "problem": problem.name,
                "baseline": name,
                "t": float(t),
                "prediction": float(exact.prompt_weights @ baseline_trace(exact, float(t) * baselines[name])),
                "estimate": float(simulation.prompt_mse[i]) * settings["group_size"],
                "standard_error": float(simulation.prompt_mse_standard_error[i]) * settings["group_size"],
                "replications": simulation.replications,
            }
        )
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """The curve illustrates U6 and R2, whose claims stand in `baselines`."""
    return []


STUDY = Study("baseline_curve", "the variance as a function of the baseline, SmolLM2", cells, compute, rows, claims)
