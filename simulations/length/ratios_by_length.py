"""Importance ratios and the clip over long responses, exact.

The policy has drifted from the one that sampled as the noise of a step moves it, by 1 nat per response. Ten directions are drawn,
and a statement is judged by the direction that is worst for it. The longer the response, the nearer a token's ratio is to 1; the
ratio of the whole response is not. In the controls the drift is 2 nats, there is no ratio, or the response has 64 tokens, with
the same drift.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.harness import check, run
from grpo_theory.problem.gallery import KINDS
from simulations.length.drifts import NEAR, SUCCESS, ahead, drifted
from simulations.length.grid import point_of
from simulations.statements import stated

WHOLE, DIRECTION, CLIPPED = stated("length/whole ratio", "length/token direction", "length/clip")
POWERLESS = {
    ("length/token direction", "bigram text"): "credit lies with the last tokens, with ratios near 1: without "
    "them the mean update is turned by less than the margin"
}

SHORT, LONG = 64, 1024
LENGTHS, QUICK_LENGTHS = (16, SHORT, 256, LONG), (SHORT, LONG)
FAR = 2.0
BATCH, GROUP = 64, 16
TURN = 0.01
"""A cosine of 0.99 costs 2% of the efficiency, which nobody would notice."""
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps."""
DIRECTIONS, QUICK_DIRECTIONS = 10, 2
"""How many directions are drawn: with ten, half of all directions are worse than the worst of them once in a thousand times."""
CONTROLS = 2
"""The number of directions in which they drift by 2 nats."""
SHOWN = {name: (name, "none") for name in ("none", "token", "trajectory")} | {"token, clipped": ("token", "by sign")}
"""Ratios and clips of the leave-one-out estimator, tokens added up."""


def lengths(quick):
    """List each kind of task and length; a quick run has fewer directions and lengths."""
    directions = QUICK_DIRECTIONS if quick else DIRECTIONS
    tried = QUICK_LENGTHS if quick else LENGTHS
    return [{"kind": kind, "length": length, "directions": directions} for kind in KINDS for length in tried]


def long(quick):
    """List the cases that are judged."""
    return [one for one in lengths(quick) if one["length"] == LONG]


@run()
def laws(kind, length, directions, drift=NEAR):
    """Efficiency and cosine of each ratio, by direction."""
    point, rloo = point_of(kind, length, SUCCESS), gt.estimators()["rloo"].advantage
    found: dict[str, Any] = {name: {"efficiency": [], "cosine": []} for name in SHOWN}
    for d in range(directions):
        # One point for all estimators, which share its tables.
        current = replace(point, theta=drifted(point, drift, d))
        for name, (ratio, clip) in SHOWN.items():
            estimator = gt.Estimator(name, rloo, RATIOS[ratio], CLIPS[clip], AGGREGATIONS["sum"])
            law = gt.exact.law_between(current, point, estimator, batch_size=BATCH, group_size=GROUP)
            found[name]["efficiency"].append(ahead(law))
            found[name]["cosine"].append(law.cosine)
    return found


@check(WHOLE, of=laws, cases=long, broken={"drift": FAR, "directions": CONTROLS}, setting="{kind}")
def whole(found):
    """Whole against token ratios."""
    behind = np.log(np.abs(found["token"]["efficiency"] / found["trajectory"]["efficiency"]))
    return behind, 0.0, {"least log of the quotient": behind.min()}


@check(DIRECTION, of=laws, cases=long, broken={"ratio": "none"}, setting="{kind}")
def direction(found, ratio="token"):
    """The direction of the mean update with token ratios."""
    turned = 1.0 - found[ratio]["cosine"]
    return turned, TURN, {"directions in which the cosine is less": (turned > TURN).sum()}


@check(CLIPPED, of=laws, cases=long, broken={"length": SHORT}, setting="{kind}")
def clip(found):
    """What the clip costs."""
    lost = 1.0 - found["token, clipped"]["efficiency"] / found["token"]["efficiency"]
    return lost, LOSS, {"directions in which it costs more": (lost > LOSS).sum()}
