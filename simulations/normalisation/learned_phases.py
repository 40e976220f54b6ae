"""N11, N12: do prompts lose their orthogonality where features are learned, and what are the phases of division?  Exact.

Networks of two layers range from narrow to wide, and prompts are easy or hard. Inputs, right answers and the start are drawn.
All statements are about means over the draws, and limits count draws. Ascent is along the sums of grad J_i and of
grad J_i / sqrt(V_i), with first updates of one length in the logits. The linear policies with the features of the start ascend in
the same way. The criterion of a phase is that of SmolLM2's head.

For what division gains, the control is the divided arm with a tenth of the step: its first update is shorter than the others'.
For cosines, the controls are gradients without their signs, and prompts that share no parameter. For what learning the features
adds, the control is the linear policy after half of the updates.

The draws are numbered from 0 and were fixed before the run. An earlier version of this study saw two networks of each kind, at a
quarter of the step.
"""

from collections.abc import Iterator
from itertools import product
from operator import neg
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import average, distance, evidence, largest
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.networks import Place, ascent, linearised, network_problem, of_their_own, pair_cosines
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL, stretches, windows
from simulations.statements import stated

DRIFT, LEARNED, LOST = stated("N11/learned features", "N11/features", "N12/III, learned features")
PRINTED_SHARES, FIRST, SECOND = stated("N11/printed, learned features", "N12/I, learned features", "N12/II, learned features")
WIDTHS, MIXTURES = (4, 16, 64), ("easy", "hard")
DRAWS, QUICK_DRAWS = 48, 32
UPDATES, STRIDE = (0, 5, 10, 20, 40, 80, 160), 0.4
FALL, MORE = 0.1, 0.05
"""A tenth of the pairs is a quarter of the printed drift; half of that must be due to the features."""
SLOW = 0.1
"""A tenth of the step of the others: that much is no matter of taste."""


class Arm(NamedTuple):
    """What is climbed along: V_i^(power/2) grad J_i, with a first update of a length relative to that of the others."""

    power: float = 0.0
    length: float = 1.0


ARMS = {"plain": Arm(), "divided": Arm(-1.0), "slow": Arm(-1.0, SLOW)}
FEATURES = {"learned": ("plain", "divided", "slow"), "of the start": ("plain", "divided")}
"""And the arms that climb with them."""
MEASURES = ("success", "deviation", "orthogonality", "without signs", "apart")
"""Means over prompts of success and its deviation; shares of pairs whose gradients are near-orthogonal.

The last two are those of gradients whose entries have lost their signs, and of prompts with parameters of their own.
"""
PRINTED_NEAR = {"start": 0.977, "middle": 0.803, "end": 0.524}
"""Shares of |cos| < 0.1 at steps 0, 260 and 500."""
TENTH = 0.1
"""A share of which the first digit holds would be read as the same finding, as for SmolLM2's head."""
MORE_FALL = "fall beyond that of the start's features"
SHARE = MEASURES.index("orthogonality")
FALLS = {name: MEASURES.index(name) for name in ("orthogonality", "apart")}
"""What falls from start to end: the share, and for the control that of prompts that share no parameter."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each width and mixture of prompts; a quick run has the first."""
    kinds = list(product(WIDTHS, MIXTURES))[: 1 if quick else None]
    common = {"updates": list(UPDATES), "draws": QUICK_DRAWS if quick else DRAWS}
    return [Cell({"width": width, "mixture": mixture} | common) for width, mixture in kinds]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[Any]:
    """Return the measures of each arm on each draw, (features, arms, draws, updates, measures)."""
    networks = [network_problem(settings["width"], draw, mixture=settings["mixture"]) for draw in range(settings["draws"])]
    kinds = (networks, [linearised(network) for network in networks])
    return [
        [[course(problem, ARMS[arm], settings["updates"]) for problem in kind] for arm in arms]
        for kind, arms in zip(kinds, FEATURES.values(), strict=True)
    ]


def course(problem: gt.Problem, arm: Arm, updates: list[int]) -> list[list[float]]:
    """Return the `MEASURES` of an ascent after these numbers of updates, (updates, measures)."""
    path = enumerate(ascent(problem, arm.power, updates[-1], arm.length * STRIDE))
    return [measured(place) for n, place in path if n in updates]


def measured(place: Place) -> list[float]:
    """Return the `MEASURES` of a policy."""
    now, gradients = place.now, place.tangent.adjoint_by_prompt(place.now.covectors)
    shares = [near_orthogonal(pair_cosines(vectors)) for vectors in (gradients, np.abs(gradients), of_their_own(now.covectors))]
    return [float(now.value.mean()), float(now.deviation.mean()), *shares]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Measures of each arm at each number of updates, advantages over the plain arm and their increases, with their phases."""
    common = {name: settings[name] for name in ("width", "mixture")} | {"prediction": np.nan}
    courses = {
        kind: dict(zip(names, np.array(arms), strict=True))
        for (kind, names), arms in zip(FEATURES.items(), results[0], strict=True)
    }
    table: Rows = []
    for features, arms in courses.items():
        for arm, course in arms.items():
            at = common | {"features": features, "arm": arm}
            table += [at | row for row in _measures(course, settings["updates"])]
            table += [
                at | {"quantity": f"fall, {name}"} | summary(course[:, -1, q] - course[:, 0, q]) for name, q in FALLS.items()
            ]
            if arm != "plain":
                table += [at | row for row in _advantages(course, arms["plain"], settings["updates"])]
    own, frozen = (courses[kind]["plain"][:, :, SHARE] - courses[kind]["plain"][:, :1, SHARE] for kind in FEATURES)
    more = {"learned": own[:, -1] - frozen[:, -1], "of the start": frozen[:, -2] - frozen[:, -1]}
    return table + [common | {"features": kind, "quantity": MORE_FALL} | summary(fall) for kind, fall in more.items()]


def _measures(course: Array, updates: list[int]) -> Rows:
    """Return a row for each number of updates and measure of a course (draws, updates, measures).

    Of shares it also says in how many of the draws orthogonality is lost.
    """
    rows: Rows = []
    for (n, update), (q, quantity) in product(enumerate(updates), enumerate(MEASURES)):
        lost = {"lost": float((course[:, n, q] <= ORTHOGONAL).mean())} if q == SHARE else {}
        rows.append({"quantity": quantity, "update": update} | lost | summary(course[:, n, q]))
    return rows


def _advantages(course: Array, plain: Array, updates: list[int]) -> Rows:
    """Return advantages over the plain course, and their increases with their phases, which are those of the means over draws."""
    gains = course[:, :, 0] - plain[:, :, 0]
    means = plain.mean(axis=0)
    premises = means[:, MEASURES.index("deviation")], means[:, SHARE]
    advantages = [
        {"quantity": "advantage", "update": update, "other_sign": float((gain * gain.mean() < 0.0).mean())} | summary(gain)
        for update, gain in zip(updates, gains.T, strict=True)
    ]
    return advantages + [row for between in (windows, stretches) for row in between(gains, updates, *premises)]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the drift of cosines and the loss of orthogonality, and the phases where their premises hold."""
    for (width, mixture), part in table.groupby(["width", "mixture"], sort=False):
        where = f"networks of width {width:g}, {mixture}"
        yield from _of_cosines(where, part)
        at = {(row["arm"], row["quantity"]): row for row in part[part["features"] == "learned"].to_dict("records")}
        for statement, quantity, measure, bound in (
            (FIRST, "increase in I", neg, 0.0),
            (SECOND, "increase in II", abs, NOTICEABLE),
        ):
            if ("divided", quantity) in at:
                both = [at[arm, quantity] for arm in ("divided", "slow")]
                own, control = (evidence(row | {"estimate": measure(row["estimate"])}, bound) for row in both)
                span = {"from update": float(both[0]["update"]), "to update": float(both[0]["until"])}
                yield statement.claim(where, own, control, span)


def _of_cosines(where: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield the shares of near-orthogonal gradients at the start, half-way in success and at the end, and their fall."""
    learned = part[part["features"] == "learned"]
    for arm in ("plain", "divided"):
        own = learned[learned["arm"] == arm]
        last = own.groupby("quantity").tail(1).set_index("quantity").to_dict("index")
        fallen, kept = (evidence(last[f"fall, {name}"], -FALL) for name in FALLS)
        yield DRIFT.claim(f"{where}, {arm}", fallen, kept)
        end, apart = (evidence(last[name], ORTHOGONAL) for name in FALLS)
        yield LOST.claim(f"{where}, {arm}", end, apart, {"share of draws that lose it": last["orthogonality"]["lost"]})
    more = part[part["quantity"] == MORE_FALL].set_index("features").to_dict("index")
    learns, stays = (evidence(more[kind], -MORE) for kind in FEATURES)
    yield LEARNED.claim(where, learns, stays)
    at = dict(iter(learned[learned["arm"] == "plain"].groupby("quantity")))
    success = at["success"]["estimate"].to_numpy()
    middle = average(success[[0, -1]])
    half = int(np.argmin([largest([middle - value, 0.0]) for value in success]))
    for (time, printed), n in zip(PRINTED_NEAR.items(), (0, half, -1), strict=True):
        own, control = (distance(at[name].iloc[n], printed, TENTH) for name in ("orthogonality", "without signs"))
        facts = {name: float(at[name]["estimate"].iloc[n]) for name in ("success", "orthogonality")}
        yield PRINTED_SHARES.claim(f"{where}, {time}", own, control, facts)
