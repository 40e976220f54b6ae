"""R1: which objective finite groups climb, with binary rewards, for every trainer's convention.

The enumerated mean updates are compared with h'(p) grad p in closed form, and GRPO's slope with its limit and its greatest value.

In the updates' controls a convention has the other ddof, forgets to divide by the mean, or has the own sample wrongly in or out.
In that of the limit an epsilon does not go away as groups grow.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.trainers import CONVENTIONS as TRAINERS
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import best_slope, finite_group_objective, left_out_slope, relative_slope, standardised_slope
from simulations.statements import stated

R1, UPDATE, LIMIT, GREATEST = stated("R1", "R1/update", "R1/limit", "R1/greatest")

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
    """One cell for each convention, and one for GRPO's slope; exact, so quick is no different."""
    return [Cell({"convention": name}) for name in (*CONVENTIONS, "")]


def discrepancy(problem: gt.Problem, estimator: str | gt.Estimator, size: int, slope: Callable[[Array, int], Array]) -> float:
    """Return how far the enumerated mean updates are from h'(p) grad p, relative to the largest of these."""
    law = gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=size)
    expected = slope(gt.moments(problem, problem.theta).value, size)[:, None] * law.true_covectors
    return float(np.abs(law.mean_covectors - expected).max() / np.abs(expected).max())


def update(name: str) -> Comparison:
    """Compare a convention, and its broken kernel, with the closed form, where they are farthest from it."""
    slope, broken = CONVENTIONS[name]
    sizes = [size for size in GROUP_SIZES if not (name == "nemo_rl" and size == 2)]  # the others are one, and no ddof matters
    where = [(gt.gallery.problem(problem), size) for problem in PROBLEMS for size in sizes]
    gap, wrong = (largest([discrepancy(problem, one, size, slope) for problem, size in where]) for one in (name, broken))
    return UPDATE.compare(name, gap, 0.0, broken=wrong)


def curve(name: str, size: int) -> Iterator[dict[str, Any]]:
    """Tabulate h'(p) and h(p) from a kernel."""
    p, objective = np.array(PROBABILITIES), finite_group_objective(name, size)
    for x, slope, value in zip(PROBABILITIES, objective.slope(p), objective.value(p), strict=True):
        yield {"kind": "curve", "convention": name, "group_size": size, "p": x, "value": float(value), "estimate": float(slope)}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the update of a convention, and its curves; or the approach of GRPO's slope to its limit, and its greatest."""
    if name := settings["convention"]:
        yield update(name)
        for size in DRAWN:
            yield from curve(name, size)
        return

    def exponent(estimator: gt.Estimator) -> float:
        slopes = [float(finite_group_objective(estimator, size).slope(AT)) for size in LARGE]
        off = [abs(slope * np.sqrt(AT * (1.0 - AT)) - 1.0) for slope in slopes]
        return float(np.polyfit(np.log(LARGE), np.log(off), 1)[0])

    def greatest(estimator: gt.Estimator) -> float:
        most = {size: finite_group_objective(estimator, size).slope_range[1] for size in DRAWN}
        return largest([slope / ((size - 1.0) / np.sqrt(size)) for size, slope in most.items()])

    yield LIMIT.compare(f"p = {AT}", exponent(BARE), -1.0, broken=exponent(DULL))
    yield GREATEST.compare("G = 2 to 64", greatest(BARE), 1.0, broken=greatest(BARE.with_parameters(ddof=0.0)))
