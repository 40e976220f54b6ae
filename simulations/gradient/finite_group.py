"""R1: with finite groups and binary rewards the mean update is h'(p) grad p, for every trainer's convention, exactly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.trainers import CONVENTIONS as TRAINERS
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import best_slope, finite_group_objective, left_out_slope, relative_slope, standardised_slope
from simulations.claims import claim, unconverted

PROBLEMS = ("two-arms", "tabular", "linear", "sequence-shared")
"""With binary rewards and no penalty."""
GROUP_SIZES = (2, 3, 8, 32)
LARGE = (128, 256, 512, 1024)
DRAWN = (2, 4, 8, 64)
PROBABILITIES = tuple(np.round(np.linspace(0.005, 0.995, 100), 4).tolist())
AT = 0.3
"""Where the limit is read: away from 1/2, where everything is symmetric, and with 38 failures or successes at the least G."""

CONVENTIONS: dict[str, tuple[Callable[[Array, int], Array], str | gt.Estimator]] = {
    "trl_grpo": (lambda p, size: standardised_slope(p, size, 1, 1e-4), TRAINERS["trl_grpo"].with_parameters(ddof=0)),
    "verl_grpo": (lambda p, size: standardised_slope(p, size, 1, 1e-6), TRAINERS["verl_grpo"].with_parameters(ddof=0)),
    "openrlhf_group_norm": (
        lambda p, size: standardised_slope(p, size, 1, 1e-9),
        TRAINERS["openrlhf_group_norm"].with_parameters(ddof=0),
    ),
    "rllm": (lambda p, size: standardised_slope(p, size, 0, 1e-6), TRAINERS["rllm"].with_parameters(ddof=1)),
    "nemo_rl": (lambda p, size: left_out_slope(p, size, 1, 1e-6), TRAINERS["nemo_rl"].with_parameters(ddof=0)),
    "max_rl": (relative_slope, "prime_rl"),
    "verl_grpo_passk": (
        lambda p, size: best_slope(p, size, 1, 1e-6),
        TRAINERS["verl_grpo_passk"].with_parameters(ddof=0),
    ),
    "trl_grpo_none": (lambda p, size: np.full(p.shape, 1.0 - 1.0 / size), "trl_rloo"),
    "trl_rloo": (lambda p, size: np.ones(p.shape), "trl_grpo_none"),
}
"""The closed form of h'(p), and a broken kernel: the other ddof; a division by the mean forgotten; the own sample in, or out."""

BARE = TRAINERS["openrlhf_group_norm"].with_parameters(epsilon=0.0)
DULL = BARE.with_parameters(epsilon=0.1)
"""GRPO without an epsilon, and one whose epsilon does not go away as groups grow."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, and one for p alone; exact, so quick is no different."""
    return [Cell({"problem": name}) for name in (*PROBLEMS, "")]


def discrepancy(problem: gt.Problem, estimator: str | gt.Estimator, size: int, slope: Callable[[Array, int], Array]) -> float:
    """Return how far the enumerated mean updates are from h'(p) grad p, relative to the largest of these."""
    law = gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=size)
    expected = slope(gt.moments(problem, problem.theta).value, size)[:, None] * law.true_covectors
    return float(np.abs(law.mean_covectors - expected).max() / np.abs(expected).max())


def updates(problem: gt.Problem) -> list[dict[str, Any]]:
    """Compare every convention, and its broken kernel, with the closed form."""
    return [
        {
            "kind": "update",
            "convention": name,
            "group_size": size,
            "found": discrepancy(problem, name, size, slope),
            "broken": discrepancy(problem, broken, size, slope),
        }
        for name, (slope, broken) in CONVENTIONS.items()
        for size in GROUP_SIZES
        if not (name == "nemo_rl" and size == 2)  # the others are one, and no ddof matters
    ]


def curves() -> list[dict[str, Any]]:
    """Tabulate h'(p) and h(p) from the kernels, the approach to the limit, and the greatest slope."""
    p = np.array(PROBABILITIES)
    found: list[dict[str, Any]] = []
    for name in CONVENTIONS:
        for size in DRAWN:
            objective = finite_group_objective(name, size)
            facts = {"kind": "curve", "convention": name, "group_size": size}
            found += [
                facts | {"p": float(x), "found": float(slope), "value": float(value)}
                for x, slope, value in zip(p, objective.slope(p), objective.value(p), strict=True)
            ]
    for size in LARGE:
        off = [abs(float(finite_group_objective(e, size).slope(AT)) * np.sqrt(AT * (1.0 - AT)) - 1.0) for e in (BARE, DULL)]
        found.append({"kind": "limit", "group_size": size, "found": off[0], "broken": off[1]})
    for size in DRAWN:
        bound = (size - 1.0) / np.sqrt(size)
        most = [finite_group_objective(e, size).slope_range[1] / bound for e in (BARE, BARE.with_parameters(ddof=0.0))]
        found.append({"kind": "greatest", "group_size": size, "found": most[0], "broken": most[1]})
    return found


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Enumerate."""
    return updates(gt.gallery.problem(settings["problem"])) if settings["problem"] else curves()


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each comparison and each point of a curve."""
    return [
        {"problem": settings["problem"]}
        | {name: value for name, value in found.items() if name != "found"}
        | {
            "prediction": {"update": 0.0, "limit": 0.0, "greatest": 1.0}.get(found["kind"], float("nan")),
            "estimate": found["found"],
            **EXACT,
        }
        for found in results[0]
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge the update for each convention, the limit by its rate, and the greatest slope."""
    found = []
    for name, part in table[table["kind"] == "update"].groupby("convention", sort=False):
        own, broken = (exact(largest(part[column]), 0.0) for column in ("estimate", "broken"))
        found.append(claim("R1/update", str(name), own, broken))
    limit = table[table["kind"] == "limit"]
    # Margin: the next term is of relative order 1/G, which moves the slope by less than 0.02 from G = 128 on.
    slopes = (float(np.polyfit(np.log(limit["group_size"]), np.log(limit[name]), 1)[0]) for name in ("estimate", "broken"))
    own, broken = (exact(slope, -1.0, 0.05) for slope in slopes)
    found.append(claim("R1/limit", f"p = {AT}", own, broken))
    part = table[table["kind"] == "greatest"]
    own, broken = (exact(largest(part[name]), 1.0) for name in ("estimate", "broken"))
    found.append(claim("R1/greatest", "G = 2 to 64", own, broken))
    return found


STUDY = unconverted(
    "finite_group",
    "R1: which objective finite groups climb, with binary rewards, for every trainer's convention",
    cells,
    compute,
    rows,
    claims,
    ("R1/update", "R1/limit", "R1/greatest"),
)
