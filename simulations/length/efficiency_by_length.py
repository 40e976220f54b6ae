"""The group size of most efficiency against the length of responses, by estimator and kind of task, exact.

A step has 1,024 responses, in groups of 2 to 1,024. Efficiency is what a learning rate cannot undo. In one control the group size
is at one of the two ends, whichever loses more. In the other a response is divided by the square of its length.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.plan.advice import TOLERANCE
from grpo_theory.problem.chains import KINDS
from simulations.gradient.groups import RESPONSES
from simulations.length.grid import kinds_and_rates
from simulations.statements import stated

SIXTEEN, OWN_LENGTH, PLANNED = stated("length/sixteen", "length/own length", "length/planned")

ESTIMATORS = ("reinforce", "rloo", "dr_grpo", "trl_grpo", "verl_grpo", "nemo_rl", "max_rl", "trl_grpo_loss")
"""No baseline; leave-one-out and group means; divided as three trainers do, and by the mean; and by each response's length."""
JUDGED = ESTIMATORS[1:]
"""Without a baseline nothing of a group is used, and the smallest is best at any length."""
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TRIED = 16
SUM, MEAN, LONG = "trl_grpo", "trl_grpo_loss", 1024
"""Of the same advantages the sum and the mean over a response's tokens, and the horizon where they are compared."""
SQUARED = gt.Estimator(
    "squared",
    find(SUM).advantage,
    aggregation=gt.Aggregation("squared", lambda lengths, constant: 1.0 / np.square(lengths, dtype=np.float64)),
)
VARIED = ("goal walk", "think until sure")
"""The kinds whose responses differ in length."""
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps: a trainer would not tune the group size for less."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of task and success rate."""
    return kinds_and_rates(quick)


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the efficiencies by length and group size, and the most that groups of 16 lose over the lengths."""
    kind, rate = settings["kind"], settings["success"]
    efficiencies = np.array([_by_size(kind, rate, length) for length in settings["lengths"]])
    for length, by_name in zip(settings["lengths"], efficiencies, strict=True):
        for name, by_size in zip(ESTIMATORS, by_name, strict=True):
            for size, efficiency in zip(GROUP_SIZES, by_size, strict=True):
                common = {"kind": kind, "success": rate, "length": length, "estimator": name, "responses": RESPONSES}
                yield common | {"group_size": size, "estimate": float(efficiency)}
    losses = 1.0 - efficiencies / efficiencies.max(axis=2, keepdims=True)
    best = np.array(GROUP_SIZES)[efficiencies.argmax(axis=2)]
    for name in JUDGED:
        e = ESTIMATORS.index(name)
        lost, *ends = (
            float(losses[:, e, GROUP_SIZES.index(size)].max()) for size in (TRIED, *GROUP_SIZES[:: len(GROUP_SIZES) - 1])
        )
        facts = {f"best group size at {length:,} tokens": float(best[t, e]) for t, length in enumerate(settings["lengths"])}
        yield SIXTEEN.compare(f"{kind}, success {rate:g} ({name})", lost, LOSS, broken=max(ends), facts=facts)
    if kind in VARIED:
        yield _own_length(kind, rate)
        yield _planned(kind, rate, losses)


def _planned(kind: str, rate: float, losses: Array) -> Comparison:
    """What the mean over a response's tokens loses at the size that a planner names that knows the advantages alone."""
    known, own = (losses[:, ESTIMATORS.index(name)] for name in (SUM, MEAN))
    lost = np.take_along_axis(own, known.argmin(axis=1)[:, None], axis=1)
    return PLANNED.compare(f"{kind}, success {rate:g}", float(lost.max()), TOLERANCE, broken=float(own[:, [0, -1]].max()))


def _own_length(kind: str, rate: float) -> Comparison:
    """What the mean over a response's own tokens loses against their sum, at their best sizes; the control: length squared."""
    problem = KINDS[kind](LONG, rate)
    point = problem.at(problem.theta)
    added, divided, broken = (max(_efficiencies(point, estimator)) for estimator in (SUM, MEAN, SQUARED))
    return OWN_LENGTH.compare(f"{kind}, success {rate:g}", 1.0 - divided / added, LOSS, broken=1.0 - broken / added)


def _by_size(kind: str, rate: float, length: int) -> list[list[float]]:
    """Return the efficiency of each estimator at each group size."""
    problem = KINDS[kind](length, rate)
    point = problem.at(problem.theta)
    return [_efficiencies(point, name) for name in ESTIMATORS]


def _efficiencies(point: gt.Point, estimator: str | gt.Estimator) -> list[float]:
    laws = (gt.exact.law_between(point, point, estimator, batch_size=RESPONSES // g, group_size=g) for g in GROUP_SIZES)
    return [law.efficiency for law in laws]
