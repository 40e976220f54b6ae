"""N11, N12: do prompts lose their orthogonality because features are learned?  Networks of two layers, exact.

Inputs are normal, in as many dimensions as give the mean |cos| of the paper's representations. Half of the prompts have four
right answers of eight, the others one. Three policies ascend along exact gradients, with first updates of one length in the
logits. Two are the network, undivided or with gradients divided by the prompts' standard deviations. The third is the linear
policy with the features of the network's start.

In the control the prompts share no parameter, so their cosines stay 0. For what learning the features adds, the control is
another draw of features that are not learned.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.harness.study import Cell, Settings
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.learned_statements import DRIFT, FALL, LOST
from simulations.normalisation.networks import ascent, linearised, network_problem, sharing_nothing
from simulations.normalisation.phases import ORTHOGONAL
from simulations.sources import NORMALIZATION, OURS

FEATURES = Statement(
    "N11/features",
    f"question beside {NORMALIZATION}",
    "the share of |cos| < 0.1 falls by at least 5 points more with learned features than with those of the start",
    "upper bound",
    whose=OURS,
)

WIDTHS, QUICK_WIDTHS = (8, 16, 64), (16,)
PROBLEMS = (21, 22)
"""Seeds: pilots had another one."""
UPDATES, QUICK_UPDATES = (0, 10, 20, 40, 80, 160, 320, 640), (0, 10, 20, 40, 80, 160)
MORE = 0.05
"""Half of the drift that is asked for must be due to the features."""
ARMS = ("plain", "divided", "features of the start", "other features of a start")


def cells(quick: bool) -> list[Cell]:
    """One cell for each width and draw of inputs."""
    widths, seeds = (QUICK_WIDTHS, PROBLEMS[:1]) if quick else (WIDTHS, PROBLEMS)
    updates = list(QUICK_UPDATES if quick else UPDATES)
    return [Cell({"width": width, "seed": seed, "updates": updates}) for width in widths for seed in seeds]


def course(problem: gt.Problem, arm: str, updates: list[int]) -> Iterator[tuple[float, Array]]:
    """Yield mean success and the gradients' cosines, (M (M - 1)/2,), at numbers of updates."""
    climbed = linearised(problem) if "features" in arm else problem
    for n, place in enumerate(ascent(climbed, -1.0 if arm == "divided" else 0.0, updates[-1])):
        if n in updates:
            yield float(place.now.value.mean()), place.cosines


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the share of near-orthogonal pairs along each course, and its fall."""
    width, seed, updates = settings["width"], settings["seed"], settings["updates"]
    where = f"width {width}, inputs {seed}"
    falls, ends = {}, {}
    for arm in ARMS:
        problem = network_problem(width, seed, draw=int(arm == ARMS[-1]))
        shares: list[float] = []
        for update, (success, cosines) in zip(updates, course(problem, arm, updates), strict=True):
            shares.append(near_orthogonal(cosines))
            at = {"width": width, "inputs": seed, "arm": arm, "update": update, "success": success}
            yield at | {"quantity": "share below 0.1", "estimate": shares[-1]}
            yield at | {"quantity": "mean |cos|", "estimate": float(np.abs(cosines).mean())}
        falls[arm], ends[arm] = shares[-1] - shares[0], shares[-1]
    for arm in ARMS[:2]:
        apart = [near_orthogonal(cosines) for _, cosines in course(sharing_nothing(problem.bandit), arm, [0, updates[-1]])]
        yield DRIFT.compare(f"{where}, {arm}", falls[arm], -FALL, broken=apart[-1] - apart[0])
        yield LOST.compare(f"{where}, {arm}", ends[arm], ORTHOGONAL, broken=apart[-1])
    frozen, other = (falls[arm] for arm in ARMS[2:])
    yield FEATURES.compare(where, falls["plain"] - frozen, -MORE, broken=other - frozen)
