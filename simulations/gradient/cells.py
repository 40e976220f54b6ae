"""Cells, chunks and rows of studies that simulate gradients on the gallery."""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.harness.fingerprint import estimator_fingerprint
from grpo_theory.harness.study import Cell, Settings
from simulations.seeds import seed_of

REPLICATIONS = 1 << 18
QUICK_RESPONSES = 1 << 21
CHUNK_RESPONSES = 1 << 24


def gradient_cells(
    estimators: Sequence[str | gt.Estimator],
    group_sizes: Sequence[int],
    *,
    batch_size: int,
    quick: bool,
    problems: Sequence[str] | None = None,
) -> list[Cell]:
    """List the cells (problem, group size), split into chunks of whole blocks."""
    chosen = [find(estimator) for estimator in estimators]
    code = "".join(estimator_fingerprint(estimator) for estimator in chosen)
    cells = []
    for name in problems or gt.gallery.names("gradient"):
        for group_size in group_sizes:
            responses = batch_size * group_size
            replications = min(REPLICATIONS, QUICK_RESPONSES // responses) if quick else REPLICATIONS
            block = gt.block_replications(batch_size, group_size)
            chunk = min(replications, max(CHUNK_RESPONSES // responses // block * block, block))
            settings = {
                "problem": name,
                "estimators": [estimator.name for estimator in chosen],
                "batch_size": batch_size,
                "group_size": group_size,
                "chunk_replications": chunk,
            }
            cells.append(Cell(settings, -(-replications // chunk), code, shared=True))
    return cells


def simulate_estimators(
    settings: Settings, estimators: Sequence[str | gt.Estimator], rng: np.random.Generator, chunk: int
) -> dict[str, Any]:
    """Simulate one chunk: whole blocks, numbered on from those of the chunks before."""
    problem = gt.gallery.problem(settings["problem"])
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    replications = settings["chunk_replications"]
    simulation = gt.simulate_gradients(
        problem,
        problem.theta,
        estimators,
        **sizes,
        replications=replications,
        rng=seed_of(rng),
        workers=1,
        first_block=chunk * (replications // gt.block_replications(**sizes)),
    )
    return {"simulation": simulation.to_dict()}


def merge(results: Sequence[dict[str, Any]]) -> gt.GradientSimulation:
    """Merge the chunks' results in order."""
    return reduce(gt.GradientSimulation.merge, (gt.GradientSimulation.from_dict(chunk["simulation"]) for chunk in results))


def errors_of(simulation: gt.GradientSimulation, *quantities: str) -> Iterator[dict[str, Any]]:
    """Yield what was simulated of each estimator, its "mse", "prompt_mse" or "efficiency", as columns of a row."""
    for i, name in enumerate(simulation.estimators):
        for quantity in quantities:
            estimate, error = getattr(simulation, quantity)[i], getattr(simulation, f"{quantity}_standard_error")[i]
            yield _columns(name, quantity, estimate, error, simulation.replications)


def differences_of(
    simulation: gt.GradientSimulation, pairs: Sequence[tuple[str, str]], *quantities: str
) -> Iterator[dict[str, Any]]:
    """Yield the differences of two estimators' errors, "mse" or "prompt_mse", on the same draws, as columns of a row."""
    for first, second in pairs:
        for quantity in quantities:
            estimate, error = getattr(simulation, f"{quantity}_difference")(first, second)
            yield _columns(f"{first} - {second}", quantity, estimate, error, simulation.replications)


def _columns(estimator: str, quantity: str, estimate: float, error: float, replications: int) -> dict[str, Any]:
    numbers = {"estimate": float(estimate), "standard_error": float(error), "replications": replications}
    return {"estimator": estimator, "quantity": quantity, **numbers}
