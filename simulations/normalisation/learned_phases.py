"""N11, N12: the phases of training with division where features are learned.  Networks of two layers, exact.

Ascent is along the sums of grad J_i and of grad J_i / sqrt(V_i), with first updates of one length in the logits. Networks range
from narrow to wide, and prompts are easy, hard, or both. The linear policies with the features of the start ascend in the same
way. The criterion is that of SmolLM2's head.

For what division gains, the control is the divided arm with a tenth of the step: its first update is shorter than the others'.
For cosines, the controls are gradients without their signs, and prompts that share no parameter.
"""

from collections.abc import Iterator
from itertools import product
from operator import neg
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import average, exact, largest
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.learned_statements import DRIFT, FALL, LOST
from simulations.normalisation.networks import (
    BOTH,
    MIXTURES,
    STRIDE,
    Place,
    ascent,
    linearised,
    network_problem,
    of_their_own,
    pair_cosines,
)
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL, is_orthogonal, stretches, windows
from simulations.sources import NORMALIZATION, OURS

PRINTED_SHARES = Statement(
    "N11/printed, learned features",
    NORMALIZATION,
    "where features are learned, the share of |cos| < 0.1 is within a tenth of the printed one at the start, middle and end",
    "upper bound",
    measured=True,
)
FIRST = Statement(
    "N12/I, learned features",
    NORMALIZATION,
    "where features are learned, while prompts are near-orthogonal and deviations high, division gains: minus the increase of "
    "its advantage is below 0",
    "ordering",
    measured=True,
)
SECOND = Statement(
    "N12/II, learned features",
    NORMALIZATION,
    "where features are learned, near-orthogonal, deviations no longer high: the advantage changes by at most a point of success",
    "upper bound",
    measured=True,
)
NO_GAIN = Statement(
    "N12/III/gain, learned features",
    f"question beside {NORMALIZATION}",
    "where features are learned, once orthogonality is lost division gains at most a point of success until the end",
    "upper bound",
    whose=OURS,
)
NO_GAIN_ANYWAY = Statement(
    "N12/III/gain, features of the start",
    f"question beside {NORMALIZATION}",
    "over the same updates division gains at most a point where features stay those of the start and prompts near-orthogonal",
    "upper bound",
    whose=OURS,
)

WIDTHS, QUICK_WIDTHS = (4, 16, 64), (4, 64)
PROBLEMS = (21, 22)
"""Seeds, those of `learned_features`: pilots had another one."""
UPDATES = (0, 10, 20, 40, 80, 160, 320, 640)
SLOW = 0.1
"""A tenth of the step of the others: that much is no matter of taste."""


class Arm(NamedTuple):
    """What is climbed along: V_i^(power/2) grad J_i, with a first update of a length relative to that of the others."""

    power: float = 0.0
    length: float = 1.0


ARMS = {"plain": Arm(), "divided": Arm(-1.0), "slow": Arm(-1.0, SLOW)}
FEATURES = ("learned", "of the start")
MEASURES = ("success", "deviation", "orthogonality", "without signs", "apart")
"""Means over prompts of success and its deviation; shares of pairs whose gradients are near-orthogonal.

The last two are those of gradients whose entries have lost their signs, and of prompts with parameters of their own.
"""
PRINTED_NEAR = {"start": 0.977, "middle": 0.803, "end": 0.524}
"""Shares of |cos| < 0.1 at steps 0, 260 and 500."""
TENTH = 0.1
"""A share of which the first digit holds would be read as the same finding, as for SmolLM2's head."""
SINCE = "increase since the loss"


def cells(quick: bool) -> list[Cell]:
    """One cell for each width, mixture of prompts, and draw of inputs; quick has easy ones, of which one loses orthogonality."""
    if quick:
        return [_cell(width, "easy", PROBLEMS[0]) for width in QUICK_WIDTHS]
    return [_cell(*of) for of in product(WIDTHS, MIXTURES, PROBLEMS)]


def _cell(width: int, mixture: str, seed: int) -> Cell:
    return Cell({"width": width, "mixture": mixture, "seed": seed, "updates": list(UPDATES)})


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Return the measures of each arm at each number of updates, (updates, measures), with features of either kind."""
    network, updates = network_problem(settings["width"], settings["seed"], mixture=settings["mixture"]), settings["updates"]
    problems = dict(zip(FEATURES, (network, linearised(network)), strict=True))
    courses: dict[str, Any] = {}
    for (features, problem), (name, arm) in product(problems.items(), ARMS.items()):
        path = enumerate(ascent(problem, arm.power, updates[-1], arm.length * STRIDE))
        courses.setdefault(features, {})[name] = [measured(place) for n, place in path if n in updates]
    return courses


def measured(place: Place) -> list[float]:
    """Return the `MEASURES` of a policy."""
    now, gradients = place.now, place.tangent.adjoint_by_prompt(place.now.covectors)
    shares = [near_orthogonal(pair_cosines(vectors)) for vectors in (gradients, np.abs(gradients), of_their_own(now.covectors))]
    return [float(now.value.mean()), float(now.deviation.mean()), *shares]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Measures of each arm at each number of updates, advantages over the plain arm and their increases, with their phases."""
    names = ("width", "mixture", "seed")
    common = {name: settings[name] for name in names} | {"prediction": np.nan}
    courses = {kind: {arm: np.array(course) for arm, course in arms.items()} for kind, arms in results[0].items()}
    shares = courses["learned"]["plain"][:, MEASURES.index("orthogonality")]
    table: Rows = []
    for features, arms in courses.items():
        for arm, course in arms.items():
            at = common | {"features": features, "arm": arm}
            table += [at | row for row in _measures(course, settings["updates"])]
            if arm != "plain":
                table += [at | row for row in _advantages(course, arms["plain"], shares, settings["updates"])]
    return table


def _measures(course: Array, updates: list[int]) -> Rows:
    """Return a row for each number of updates and measure of a course (updates, measures)."""
    return [
        {"quantity": quantity, "update": update} | summary(course[n, [q]])
        for n, update in enumerate(updates)
        for q, quantity in enumerate(MEASURES)
    ]


def _advantages(course: Array, plain: Array, learned_shares: Array, updates: list[int]) -> Rows:
    """Return advantages over the plain course, their increases with their phases, and that since learning lost orthogonality."""
    gain = course[:, 0] - plain[:, 0]
    premises = plain[:, MEASURES.index("deviation")], plain[:, MEASURES.index("orthogonality")]
    advantages = [{"quantity": "advantage", "update": update} | summary(gain[[n]]) for n, update in enumerate(updates)]
    advantages += [row for between in (windows, stretches) for row in between(gain[None], updates, *premises)]
    lost = ~is_orthogonal(learned_shares)
    first = int(lost.argmax())
    if lost[:-1].any() and lost[first:].all():
        advantages.append(
            {"quantity": SINCE, "update": updates[first], "until": updates[-1]} | summary(gain[[-1]] - gain[[first]])
        )
    return advantages


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the drift of cosines and the loss of orthogonality, and the phases where their premises hold."""
    for (width, mixture, seed), part in table.groupby(["width", "mixture", "seed"], sort=False):
        where = f"width {width:g}, {mixture}, inputs {seed:g}"
        yield from _of_cosines(where, mixture, part[(part["features"] == "learned") & (part["arm"] == "plain")])
        at = part.set_index(["features", "arm", "quantity"])["estimate"].sort_index(kind="stable")
        spans = {(row.features, row.quantity): _span(row) for row in part[part["arm"] == "divided"].itertuples()}
        for statement, quantity, measure, bound in (
            (FIRST, "increase in I", neg, 0.0),
            (SECOND, "increase in II", abs, NOTICEABLE),
        ):
            if ("learned", quantity) in spans:
                own, control = (exact(measure(at["learned", arm, quantity].item()), bound) for arm in ("divided", "slow"))
                yield statement.claim(where, own, control, spans["learned", quantity])
        least = -largest(-at["of the start", "plain", "orthogonality"])
        for statement, features in ((NO_GAIN, "learned"), (NO_GAIN_ANYWAY, "of the start")):
            if (features, SINCE) in spans and (features == "learned" or is_orthogonal(least)):
                own, control = (exact(at[features, arm, SINCE].item(), NOTICEABLE) for arm in ("divided", "slow"))
                yield statement.claim(where, own, control, spans[features, SINCE])


def _of_cosines(where: str, mixture: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield the shares of near-orthogonal gradients at the start, half-way in success and at the end, and their fall.

    The fall of both easy and hard prompts is judged by `learned_features`.
    """
    at = part.pivot(index="update", columns="quantity", values="estimate")
    success = at["success"].to_numpy()
    middle = average(success[[0, -1]])
    half = int(np.argmin([largest([middle - value, 0.0]) for value in success]))
    for (time, printed), n in zip(PRINTED_NEAR.items(), (0, half, -1), strict=True):
        own, control = (exact(abs(at[name].iloc[n] / printed - 1.0), TENTH) for name in ("orthogonality", "without signs"))
        facts = {name: float(at[name].iloc[n]) for name in ("success", "orthogonality")}
        yield PRINTED_SHARES.claim(f"{where}, {time}", own, control, facts)
    if mixture != BOTH:
        own, control = (exact(at[name].iloc[-1] - at[name].iloc[0], -FALL) for name in ("orthogonality", "apart"))
        yield DRIFT.claim(where, own, control)
        own, control = (exact(at[name].iloc[-1], ORTHOGONAL) for name in ("orthogonality", "apart"))
        yield LOST.claim(where, own, control)


def _span(row: Any) -> dict[str, float]:
    return {"from update": float(row.update), "to update": float(row.until)}
