"""N5, N6: the gain of one exact step against its guarantee, on random problems and at the worst found.

A guarantee says which share of the first-order gain curvature takes at most. In the control the step climbs another answer's
probability.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.normalisation.ascent import SHARP_STEPS
from simulations.statements import stated
from simulations.worst_cases import by_the_worst, sought, worst_row

PLAIN, PLAIN_GAIN, SHARP_PLAIN_GAIN, DIVIDED, DIVIDED_GAIN = stated("N5", "N5/gain", "N5/gain, sharp", "N6", "N6/gain")
PRINTED_STEP_GAIN, SHARP_DIVIDED_GAIN = stated("N6/gain, printed step", "N6/gain, sharp")

ANSWERS, QUICK_ANSWERS = tuple(range(2, 9)), (2, 4)
SOUGHT = (2, 3)
"""Numbers of answers for which the worst case is sought: 6 and 12 parameters."""
PROBLEMS, QUICK_PROBLEMS = 5000, 500
POINTS = 60
"""Problems of each cell that are kept for the figure."""
SEARCH, QUICK_SEARCH = {"starts": 256, "climbs": 2}, {"starts": 32, "climbs": 1}
LARGEST_THETA = 12.0


class Step(NamedTuple):
    """A step of size/X^2 along grad J/V^power, and c of its guarantee c ||grad J||^2/(X^2 V^power)."""

    size: float
    power: float
    guarantee: float

    @property
    def share(self) -> float:
        """The share of the first-order gain that curvature takes at most, if the guarantee holds."""
        return 1.0 - self.guarantee / self.size


STEPS = {
    PLAIN_GAIN: Step(1.0, 0.0, 0.5),
    SHARP_PLAIN_GAIN: Step(SHARP_STEPS[0], 0.0, plain_gain_constant(SHARP_STEPS[0])),
    DIVIDED_GAIN: Step(0.5, 0.5, 3.0 / 16.0),
    PRINTED_STEP_GAIN: Step(0.5, 0.5, divided_gain_constant(0.5)),
    SHARP_DIVIDED_GAIN: Step(SHARP_STEPS[1], 0.5, divided_gain_constant(SHARP_STEPS[1])),
}


class Gains(NamedTuple):
    """Of the first answer's probability, in R problems: what a step gains, and what it would to first order."""

    exact: Array
    first_order: Array
    squared_gradient: Array
    variance: Array

    @property
    def taken(self) -> Array:
        """The share of the first-order gain that curvature takes."""
        return 1.0 - self.exact / self.first_order


def gains(features: Array, theta: Array, step: Step, rewarded: int = 0) -> Gains:
    """Return the gains of J, the first answer's probability, by a step along the gradient of a rewarded answer's probability.

    Features (R, K, d) have spectral norm 1, theta is (R, d).  Log odds move by differences: small gains have all their digits.
    """
    logits = (features @ theta[..., None])[..., 0]
    p = softmax(logits, axis=-1)
    own, failure = p[:, rewarded], np.delete(p, rewarded, axis=1).sum(axis=1)
    variance = own * failure
    pull = -own[:, None] * p
    pull[:, rewarded] = variance
    gradient = (pull[:, None, :] @ features)[:, 0]
    scale = step.size / variance**step.power
    moved = scale[:, None] * (features @ gradient[..., None])[..., 0]
    others = softmax(logits[:, 1:], axis=-1)
    growth = np.expm1(moved[:, 0] - np.log1p((others * np.expm1(moved[:, 1:])).sum(axis=1)))
    first, rest = p[:, 0], p[:, 1:].sum(axis=1)
    gained = first * rest * growth / (rest + first * (1.0 + growth))
    square = (gradient**2).sum(axis=1)
    return Gains(gained, scale * square, square, variance)


def draw(answers: int, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return features (R, K, K) of spectral norm 1, from nearly of rank one to well conditioned, and theta (R, K)."""
    features = rng.normal(size=(count, answers, answers)) * 10.0 ** rng.uniform(-2.0, 0.0, size=(count, 1, answers))
    direction = rng.normal(size=(count, answers))
    length = rng.uniform(0.0, LARGEST_THETA, size=(count, 1))
    return normalised(features), length * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def normalised(features: Array) -> Array:
    """Return features (R, K, d) divided by their spectral norms."""
    return features / np.maximum(np.linalg.norm(features, 2, axis=(-2, -1)), 1e-12)[:, None, None]


def sides(x: Array, answers: int, step: Step) -> tuple[float, float]:
    """Return the share that curvature takes at parameters (features, then theta), and its bound."""
    features, theta = x[: answers**2].reshape(1, answers, answers), x[None, answers**2 :]
    return float(gains(normalised(features), theta, step).taken[0]), step.share


def cells(quick: bool) -> list[Cell]:
    """One cell for each number of answers, a chunk for each step whose worst case is sought."""
    problems, search = (QUICK_PROBLEMS, QUICK_SEARCH) if quick else (PROBLEMS, SEARCH)
    common = {"problems": problems, "theta": LARGEST_THETA, "steps": [list(step) for step in STEPS.values()]}
    numbers = QUICK_ANSWERS if quick else ANSWERS
    sought = {k: k in SOUGHT and not (quick and k > 2) for k in numbers}
    return [Cell({"answers": k, "sought": one} | common | search, 1 + len(STEPS) * one) for k, one in sought.items()]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return what is drawn, first, and then the greatest share that a search finds for each step."""
    return [_sought(settings, rng, list(STEPS)[chunk - 1])] if chunk else _drawn(settings, rng)


def _drawn(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the greatest share of random problems, right and rewarded wrongly, and points for the figure."""
    features, theta = draw(settings["answers"], settings["problems"], rng)
    table: Rows = []
    for statement, step in STEPS.items():
        right, wrong = (gains(features, theta, step, rewarded) for rewarded in (0, 1))
        table += [worst_row(statement, how, one.taken, step.share) for how, one in (("random", right), ("broken", wrong))]
        guaranteed = step.guarantee * right.squared_gradient / right.variance**step.power
        table += [
            {"statement": statement.id, "how": "point", "prediction": float(low), "estimate": float(gain)}
            for low, gain in zip(guaranteed[:POINTS], right.exact[:POINTS], strict=True)
        ]
    return table


def _sought(settings: Settings, rng: np.random.Generator, statement: Statement) -> dict[str, Any]:
    """Return the greatest share that a search finds."""
    answers, step = settings["answers"], STEPS[statement]
    box = [(-1.0, 1.0)] * answers**2 + [(-LARGEST_THETA, LARGEST_THETA)] * answers
    worst = sought(partial(sides, answers=answers, step=step), box, settings, rng)
    return worst_row(statement, "sought", [worst.left], step.share)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst case was sought, and one for each problem that is drawn in the figure."""
    return [{"answers": settings["answers"]} | row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each guarantee with each number of answers, by the worst of what was drawn and sought."""
    stated = {one.id: one for one in STEPS}
    for (name, answers), part in table[table["how"] != "point"].groupby(["statement", "answers"], sort=False):
        own, control, _ = by_the_worst(part)
        step = STEPS[stated[name]]
        facts = {"least gain over guarantee": (1.0 - own.estimate) * step.size / step.guarantee}
        yield stated[name].claim(f"{answers} answers", own, control, facts)
