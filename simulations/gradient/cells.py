"""Runs of studies that simulate gradients on the gallery, and what is read off them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.estimation.code import code_checksum
from grpo_theory.harness.study import COLUMNS, PART, Case, Cell, Run
from simulations.seeds import seed_of

REPLICATIONS = 1 << 17
QUICK_RESPONSES = 1 << 21
CHUNK_RESPONSES = 1 << 24


def estimator_fingerprint(estimator: gt.Estimator) -> str:
    """Return a checksum of an estimator's kernel, parameters and parts."""
    second = estimator.mismatch
    parts = (estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl, second.ratio, second.bound)
    codes = [code_checksum(part.function) for part in (*parts, estimator.advantage)]
    widths = (estimator.clip.low, estimator.clip.high, estimator.aggregation.pool, estimator.aggregation.constant)
    bounds = (second.bound.low, second.bound.high)
    kept = estimator.advantage.memory
    memory = (code_checksum(kept.function), kept.start.tolist()) if kept else ()
    facts = (dict(estimator.advantage.parameters), widths, bounds, estimator.kl.place, codes, *memory)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Simulated(Run):
    """A run of some estimators on the same draws, or of a case's own one, split into chunks of whole blocks."""

    kernels: tuple[gt.Estimator, ...] = ()

    def cell(self, case: Case) -> Cell:
        """Return the cell of a case, whose fingerprint has those of the kernels."""
        sizes = {name: case[name] for name in ("batch_size", "group_size")}
        block, responses = gt.block_replications(**sizes), sizes["batch_size"] * sizes["group_size"]
        chunk = min(case["replications"], max(CHUNK_RESPONSES // responses // block * block, block))
        chosen = self.kernels or (find(case["estimator"]),)
        names = {"problem": case["problem"], "estimators": [one.name for one in chosen]}
        settings = {PART: self.compute.__name__, **names, **sizes, "chunk_replications": chunk}
        return Cell(settings, -(-case["replications"] // chunk), "".join(map(estimator_fingerprint, chosen)), shared=True)


def simulated(*kernels: str | gt.Estimator) -> Simulated:
    """Return a run, to be called `drawn`, of some estimators, or of the one that a case names."""
    known = {find(one).name: find(one) for one in kernels}

    def drawn(problem, estimators, batch_size, group_size, chunk_replications, rng, chunk):
        """Simulate one chunk: whole blocks, numbered on from those of the chunks before."""
        found, chosen = gt.gallery.problem(problem), [known.get(name, name) for name in estimators]
        sizes = {"batch_size": batch_size, "group_size": group_size}
        options = {"replications": chunk_replications, "rng": seed_of(rng), "workers": 1}
        options["first_block"] = chunk * (chunk_replications // gt.block_replications(**sizes))
        return {"simulation": [gt.simulate_gradients(found, found.theta, chosen, **sizes, **options).to_dict()]}

    return Simulated(drawn, kernels=tuple(known.values()))


def gradient_cases(
    quick: bool, group_sizes: Iterable[int], batch_size: int, problems: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """List the cases (problem, group size) and how often each is drawn."""
    cases = []
    for problem, group_size in product(tuple(problems) or gt.gallery.names("gradient"), group_sizes):
        often = min(REPLICATIONS, QUICK_RESPONSES // (batch_size * group_size)) if quick else REPLICATIONS
        cases.append({"problem": problem, "batch_size": batch_size, "group_size": group_size, "replications": often})
    return cases


def merge(found: Mapping[str, Any]) -> gt.GradientSimulation:
    """Merge the chunks' results in order."""
    return reduce(gt.GradientSimulation.merge, map(gt.GradientSimulation.from_dict, found["simulation"]))


def error_of(simulation: gt.GradientSimulation, quantity: str, first: str, second: str = "") -> tuple[float, float, int]:
    """Return an estimator's "mse", "prompt_mse" or "efficiency" as a side, or its difference from another's on the same draws."""
    if second:
        estimate, error = getattr(simulation, f"{quantity}_difference")(first, second)
    else:
        i = simulation.index(first)
        estimate, error = (float(getattr(simulation, f"{quantity}{suffix}")[i]) for suffix in ("", "_standard_error"))
    return estimate, error, simulation.replications


def row_of(simulation: gt.GradientSimulation, quantity: str, first: str, second: str = "") -> dict[str, Any]:
    """Return the same as a row."""
    numbers = dict(zip(COLUMNS[1:], error_of(simulation, quantity, first, second), strict=True))
    return {"estimator": f"{first} - {second}" if second else first, "quantity": quantity, **numbers}
