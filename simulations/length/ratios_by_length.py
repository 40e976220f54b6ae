"""Importance ratios and the clip over long responses, exact.

The policy has drifted from the one that sampled as the noise of a step moves it, by 0.1 or 1 nat a response.  A token's
ratio is then the nearer to 1 the longer the response, and the ratio of the whole response is not.  Broken: the trajectory ratio
is that of a drift of 2 nats; the token ratio is upside down; and the response has 64 tokens, with the same drift.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.aggregation import AGGREGATIONS
from grpo_theory.estimation.clip import CLIPS
from grpo_theory.estimation.ratio import RATIOS
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.chains import KINDS
from grpo_theory.problem.recursion import visits
from simulations.length.points import chain_point
from simulations.sources import OURS, TIC_GRPO, derived

WHOLE = Statement(
    "length/whole ratio",
    f"question beside {TIC_GRPO}",
    "after a drift of 1 nat a response of 1,024 tokens the ratio of the whole response is more efficient than token ratios",
    "ordering",
    formula=r"After a drift of $1$ nat a response, at $1{,}024$ tokens, the ratio of the whole response is more efficient than "
    r"token ratios.",
    whose=OURS,
)
DIRECTION = Statement(
    "length/token direction",
    derived(15),
    "after a drift of 1 nat a response of 1,024 tokens the mean update with token ratios has a cosine of 0.99 with the gradient",
    "upper bound",
    formula=r"After a drift of $1$ nat a response, at $1{,}024$ tokens, the mean update with token ratios has a cosine of at "
    r"least $0.99$ with the gradient.",
    whose=OURS,
)
CLIPPED = Statement(
    "length/clip",
    derived(15),
    "after a drift of 1 nat a response of 1,024 tokens the clip by sign at 0.2 costs token ratios at most a tenth of efficiency",
    "upper bound",
    formula=r"After a drift of $1$ nat a response, at $1{,}024$ tokens, the clip by sign at $0.2$ costs token ratios at most a "
    r"tenth of their efficiency.",
    whose=OURS,
)

POWERLESS = {
    ("length/token direction", "bigram text"): "credit lies with the last few tokens, whose ratios are all near 1: even upside "
    "down they turn the mean update by less than the margin"
}

SHORT, LONG = 64, 1024
LENGTHS, QUICK_LENGTHS = (16, SHORT, 256, LONG), (SHORT, LONG)
DRIFTS = (0.1, 1.0)
NEAR, FAR = 1.0, 2.0
SUCCESS = 0.55
BATCH, GROUP = 64, 16
TURN = 0.01
"""A cosine of 0.99 costs 2% of the efficiency, which nobody would notice."""
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps."""
SEED = 36
MOST = 50.0
"""The longest drift, in multiples of a response's noise, that is looked at."""


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


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of task; exact, and a quick run has fewer lengths."""
    return [Cell({"kind": kind, "lengths": list(QUICK_LENGTHS if quick else LENGTHS)}) for kind in KINDS]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield efficiency and cosine by length, drift and ratio, and what each statement says of them."""
    laws = {}
    for length in settings["lengths"]:
        point = chain_point(KINDS[settings["kind"]](length, SUCCESS))
        for drift in (*DRIFTS, FAR):
            theta = drifted(point, drift)
            for name, estimator in ESTIMATORS.items():
                law = _law(point, theta, estimator)
                laws[length, drift, name] = law
                if drift != FAR:
                    common = {"kind": settings["kind"], "length": length, "drift": drift, "ratio": name}
                    for quantity, value in (("efficiency", ahead(law)), ("cosine", law.cosine)):
                        yield common | {"quantity": quantity, "estimate": value}
    yield from _judged(settings["kind"], lambda length, drift, name: laws[length, drift, name])


def _judged(kind: str, law: Callable[[int, float, str], gt.GradientLaw]) -> Iterator[Comparison]:
    """Whole against token ratios, the direction of token ratios, and what the clip costs, at 1,024 tokens."""
    token, whole, far = (law(LONG, *which) for which in ((NEAR, "token"), (NEAR, "trajectory"), (FAR, "trajectory")))
    facts = {"token ratios": token.efficiency, "whole ratio": whole.efficiency}
    broken = token.efficiency - far.efficiency
    yield WHOLE.compare(kind, token.efficiency - whole.efficiency, 0.0, broken=broken, facts=facts)
    yield DIRECTION.compare(kind, 1.0 - token.cosine, TURN, broken=1.0 - law(LONG, NEAR, "upside down").cosine)
    lost, short = (
        1.0 - ahead(law(length, NEAR, "token, clipped")) / ahead(law(length, NEAR, "token")) for length in (LONG, SHORT)
    )
    yield CLIPPED.compare(kind, lost, LOSS, broken=short)


def ahead(law: gt.GradientLaw) -> float:
    """Return the efficiency, which is a square, with the sign of the cosine: below 0 where the mean update points back."""
    return float(np.copysign(law.efficiency, law.cosine))


def _law(point: ChainPoint, theta: Array, estimator: gt.Estimator) -> gt.GradientLaw:
    """Return the law at theta of responses that the point has drawn."""
    current = replace(point, theta=theta)
    return gt.exact.law_between(current, point, estimator, batch_size=BATCH, group_size=GROUP)


def drifted(point: ChainPoint, nats: float) -> Array:
    """Return parameters at which a response's divergence from the point's policy is so large, in the direction of a step's noise.

    The direction is normal with the covariance of a response's score, sum over states of visits times diag(p) - p p': tokens that
    are hardly ever drawn hardly move.
    """
    walk, weights, p = (
        point.walk(point.state_probabilities, point.unit_shares),
        point.bandit.prompt_weights,
        point.state_probabilities,
    )
    visited = weights @ np.stack([visits(walk, int(start)).sum(axis=0) for start in point.chain.starts])
    drawn = np.sqrt(p) * np.random.default_rng(SEED).standard_normal(p.shape)
    direction = (np.sqrt(visited)[:, None] * (drawn - p * drawn.sum(axis=1, keepdims=True))).ravel()

    def above(size: float) -> float:
        moved = point.chain.token_log_probabilities(point.theta + size * direction)
        return float(visited @ (p * (point.state_log_probabilities - moved)).sum(axis=1)) - nats

    return point.theta + brentq(above, 0.0, MOST) * direction
