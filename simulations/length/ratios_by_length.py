"""Importance ratios and the clip over long responses, exact.

The policy has drifted from the one that sampled as the noise of a step moves it, by 1 nat per response. Ten directions are drawn,
and a statement is judged by the direction that is worst for it. The longer the response, the nearer a token's ratio is to 1; the
ratio of the whole response is not. In the controls the drift is 2 nats, the token ratio is upside down, or the response has 64
tokens, with the same drift.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.aggregation import AGGREGATIONS
from grpo_theory.estimation.ratio import CLIPS, RATIOS
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.chains import KINDS
from simulations.length.drifts import NEAR, SUCCESS, ahead, drifted, generator_of_direction
from simulations.length.points import chain_point
from simulations.statements import stated

WORST = "one task of a kind, which the setting names; the worst of the directions of the drift that were tried"
WHOLE, DIRECTION, CLIPPED = stated("length/whole ratio", "length/token direction", "length/clip")


POWERLESS = {
    ("length/token direction", "bigram text"): "credit lies with the last tokens, with ratios near 1: upside down they "
    "turn the mean update by less than the margin, or hardly more"
}

SHORT, LONG = 64, 1024
QUICK_LENGTHS = (SHORT, LONG)
FAR = 2.0
BATCH, GROUP = 64, 16
TURN = 0.01
"""A cosine of 0.99 costs 2% of the efficiency, which nobody would notice."""
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps."""
DIRECTIONS, QUICK_DIRECTIONS = 10, 2
"""How many directions are drawn: with ten, half of all directions are worse than the worst of them once in a thousand times."""
GRID = {"lengths": [16, SHORT, 256, LONG], "directions": DIRECTIONS}


def upside_down(log_ratios, length, ratios):
    """Broken: each token has the ratio pi_0/pi."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = np.exp(-log_ratios[t, i])


def _estimator(ratio: gt.Ratio, clip: str) -> gt.Estimator:
    """Return the leave-one-out estimator with a ratio and a clip, tokens added up."""
    return gt.Estimator(f"{ratio.name}, {clip}", gt.estimators()["rloo"].advantage, ratio, CLIPS[clip], AGGREGATIONS["sum"])


ESTIMATORS = {
    "none": _estimator(RATIOS["none"], "none"),
    "token": _estimator(RATIOS["token"], "none"),
    "token, clipped": _estimator(RATIOS["token"], "by sign"),
    "trajectory": _estimator(RATIOS["trajectory"], "none"),
    "upside down": _estimator(gt.Ratio("upside down", upside_down), "none"),
}


SHOWN = ("none", "token", "token, clipped", "trajectory")
BROKEN = ((NEAR, tuple(ESTIMATORS)), (FAR, ("token", "trajectory")))
CONTROLS = 4
"""The number of directions in which the controls are computed too, at 1,024 tokens."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of task; exact for each direction, and a quick run has fewer directions and lengths."""
    grid = {"lengths": list(QUICK_LENGTHS), "directions": QUICK_DIRECTIONS} if quick else GRID
    return [Cell({"kind": kind, **grid}) for kind in KINDS]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield efficiency and cosine by length, direction and ratio, and what each statement says of the worst direction."""
    laws = {}
    for length in settings["lengths"]:
        point = chain_point(KINDS[settings["kind"]](length, SUCCESS))
        for d in range(settings["directions"]):
            for drift, names in BROKEN if length == LONG and d < CONTROLS else ((NEAR, SHOWN),):
                # One point for all estimators, which share its tables.
                current = replace(point, theta=drifted(point, drift, generator_of_direction(d)))
                for name in names:
                    laws[length, d, drift, name] = law_between(current, point, ESTIMATORS[name])
    for (length, d, drift, name), law in laws.items():
        if drift == NEAR:
            common = {"kind": settings["kind"], "length": length, "direction": d, "ratio": name}
            for quantity, value in (("efficiency", ahead(law)), ("cosine", law.cosine)):
                yield common | {"quantity": quantity, "estimate": value}
    yield from _judged(settings["kind"], range(settings["directions"]), laws)


def _judged(kind: str, directions: range, laws: dict[tuple[int, int, float, str], gt.GradientLaw]) -> Iterator[Comparison]:
    """Whole against token ratios, the direction of token ratios, and what the clip costs, at 1,024 tokens."""

    def worst(of: Callable[[int], float], within: range = directions) -> float:
        return max(of(d) for d in within)

    def behind(d: int, drift: float) -> float:
        return float(np.log(laws[LONG, d, drift, "token"].efficiency / laws[LONG, d, drift, "trajectory"].efficiency))

    def turned(d: int, name: str) -> float:
        return 1.0 - laws[LONG, d, NEAR, name].cosine

    def lost(d: int, length: int) -> float:
        return 1.0 - ahead(laws[length, d, NEAR, "token, clipped"]) / ahead(laws[length, d, NEAR, "token"])

    few = directions[:CONTROLS]
    facts = {"least log of the quotient": min(behind(d, NEAR) for d in directions)}
    yield WHOLE.compare(kind, worst(lambda d: behind(d, NEAR)), 0.0, broken=worst(lambda d: behind(d, FAR), few), facts=facts)
    facts = {"directions in which the cosine is less": sum(turned(d, "token") > TURN for d in directions)}
    upside_down = worst(lambda d: turned(d, "upside down"), few)
    yield DIRECTION.compare(kind, worst(lambda d: turned(d, "token")), TURN, broken=upside_down, facts=facts)
    facts = {"directions in which it costs more": sum(lost(d, LONG) > LOSS for d in directions)}
    yield CLIPPED.compare(kind, worst(lambda d: lost(d, LONG)), LOSS, broken=worst(lambda d: lost(d, SHORT)), facts=facts)


def law_between(current: ChainPoint, point: ChainPoint, estimator: gt.Estimator) -> gt.GradientLaw:
    """Return the law at the current point of responses that another has drawn."""
    return gt.exact.law_between(current, point, estimator, batch_size=BATCH, group_size=GROUP)
