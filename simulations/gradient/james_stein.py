"""R4: the shrunk leave-one-out baseline: bias and error.

Its bias is a sum over all batches of small problems. Its error is simulated beside the plain one's, on the same draws. In the
controls the baseline has the own sample in it, or is moved away from the other groups' mean instead of towards it.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.trainers import CONVENTIONS as TRAINERS
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Settings
from simulations.gradient.cells import differences_of, merge, simulate_estimators
from simulations.gradient.groups import advantages_of
from simulations.statements import stated

R4, UNBIASED, LOWER = stated("R4", "R4/unbiased", "R4/lower")

SMALL = ("two-arms", "two prompts")
PROBLEMS = ("tabular", "mixed", "lm-few-shot")
SIZES = ((2, 2), (2, 8), (4, 2), (4, 8), (16, 2), (16, 8))
"""Batches of B groups of G."""
REPLICATIONS, QUICK = 1 << 15, 1 << 12
SHRUNK, PLAIN, OWN = "james_stein", "trl_rloo", "trl_grpo_none"
AWAY = TRAINERS[SHRUNK].with_parameters(strength=-1.0)


def cells(quick: bool) -> list[Cell]:
    """One exact cell for each small problem; one for each problem and batch."""
    often = {"exact": False, "chunk_replications": QUICK if quick else REPLICATIONS}
    simulated = [{"problem": name, "batch_size": b, "group_size": g} | often for name, (b, g) in product(PROBLEMS, SIZES)]
    enumerated = [{"problem": name, "batch_size": 2, "group_size": 2, "exact": True} for name in SMALL]
    return [Cell(settings) for settings in enumerated + simulated]


def small_problem(name: str) -> gt.Problem:
    """Return a problem whose batches can be enumerated."""
    if name == "two-arms":
        return gt.gallery.problem(name)
    bandit = gt.Bandit([[0.2, 0.9], [0.4, 0.05]], [0.3, 0.7])
    return gt.Problem(bandit, gt.TabularSoftmax(2, 2), theta=[0.3, -0.2, -0.4, 0.5])


def mean_over_batches(problem: gt.Problem, estimator: str, batch_size: int, group_size: int) -> Array:
    """Return the expected estimate, shape (d,), as a sum over all batches of prompts and ordered groups."""
    point = problem.at(problem.theta)
    drawn = [
        (prompt, list(group), weight * point.outcome_probabilities[prompt][list(group)].prod())
        for prompt, weight in enumerate(problem.bandit.prompt_weights)
        for group in product(range(point.outcome_responses.size), repeat=group_size)
    ]
    total = np.zeros(point.token_probabilities.shape)
    for batch in product(drawn, repeat=batch_size):
        advantages = advantages_of(estimator, np.array([point.rewards[prompt][group] for prompt, group, _ in batch]))
        p = np.prod([weight for _, _, weight in batch])
        for b, (prompt, group, _) in enumerate(batch):
            total[prompt] += p * advantages[b] @ point.covectors[prompt][point.outcome_responses[group]]
    return point.tangent.adjoint(total / (batch_size * group_size))


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Any:
    """Enumerate the bias relative to the gradient, or simulate the three side by side."""
    if not settings["exact"]:
        return simulate_estimators(settings, [SHRUNK, PLAIN, AWAY], rng, chunk)
    problem = small_problem(settings["problem"])
    truth = gt.moments(problem, problem.theta).gradient
    means = (mean_over_batches(problem, name, settings["batch_size"], settings["group_size"]) for name in (SHRUNK, OWN))
    return [float(np.linalg.norm(mean - truth) / np.linalg.norm(truth)) for mean in means]


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each bias, and for each difference of an error from the plain one's, relative to that."""
    common = {name: settings[name] for name in ("problem", "batch_size", "group_size")} | {"prediction": 0.0}
    if settings["exact"]:
        for name, bias in zip((SHRUNK, OWN), results[0], strict=True):
            yield common | {"kind": "bias", "estimator": name, "estimate": bias, **EXACT}
        return
    simulation = merge(results)
    plain = float(simulation.mse[simulation.estimators.index(PLAIN)])
    for row in differences_of(simulation, [(SHRUNK, PLAIN), (AWAY.name, PLAIN)], "mse"):
        yield common | row | {"kind": "error"} | {column: row[column] / plain for column in ("estimate", "standard_error")}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The bias is 0; the error is lower, in each setting for itself."""
    for (kind, problem, b, g), part in table.groupby(["kind", "problem", "batch_size", "group_size"], sort=False):
        statement, setting = (UNBIASED, problem) if kind == "bias" else (LOWER, f"{problem}, B = {b}, G = {g}")
        own, broken = (evidence(row) for row in part.to_dict("records"))
        yield statement.claim(setting, own, broken)
