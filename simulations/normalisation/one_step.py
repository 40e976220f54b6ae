"""N5, N6: what one exact step on one prompt gains, against its guarantee, on random problems and at the worst found."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.claims import claim, unconverted
from simulations.normalisation.ascent import SHARP_STEPS

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
    "N5/gain": Step(1.0, 0.0, 0.5),
    "N5/gain, sharp": Step(SHARP_STEPS[0], 0.0, plain_gain_constant(SHARP_STEPS[0])),
    "N6/gain": Step(0.5, 0.5, 3.0 / 16.0),
    "N6/gain, printed step": Step(0.5, 0.5, divided_gain_constant(0.5)),
    "N6/gain, sharp": Step(SHARP_STEPS[1], 0.5, divided_gain_constant(SHARP_STEPS[1])),
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


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return what is drawn, first, and then the greatest share that a search finds for each step."""
    return _sought(settings, seed, list(STEPS)[chunk - 1]) if chunk else _drawn(settings, seed)


def _drawn(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the greatest share of random problems, right and rewarded wrongly, and points for the figure."""
    features, theta = draw(settings["answers"], settings["problems"], np.random.default_rng(seed))
    found: list[dict[str, Any]] = []
    for name, step in STEPS.items():
        whole = gains(features, theta, step)
        wrong = gains(features, theta, step, rewarded=1)
        for how, some in (("random", whole), ("broken", wrong)):
            found.append({"statement": name, "how": how, "prediction": step.share, "estimate": largest(some.taken)})
        guaranteed = step.guarantee * whole.squared_gradient / whole.variance**step.power
        found += [
            {"statement": name, "how": "point", "prediction": float(low), "estimate": float(gain)}
            for low, gain in zip(guaranteed[:POINTS], whole.exact[:POINTS], strict=True)
        ]
    return found


def _sought(settings: Settings, seed: np.random.SeedSequence, name: str) -> list[dict[str, Any]]:
    """Return the greatest share that a search finds."""
    answers, step = settings["answers"], STEPS[name]
    box = [(-1.0, 1.0)] * answers**2 + [(-LARGEST_THETA, LARGEST_THETA)] * answers
    at = partial(sides, answers=answers, step=step)
    worst = gt.worst_case(at, box, rng=seed, starts=settings["starts"], climbs=settings["climbs"])
    return [{"statement": name, "how": "sought", "prediction": step.share, "estimate": worst.left}]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst case was sought, and one for each problem that is drawn in the figure."""
    return [{"answers": settings["answers"]} | row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each guarantee with each number of answers; the control is rewarded for another answer."""
    found = []
    for (name, answers), part in table[table["how"] != "point"].groupby(["statement", "answers"], sort=False):
        shares = part.set_index("how")["estimate"].to_dict()
        broken, worst, step = shares.pop("broken"), largest(list(shares.values())), STEPS[str(name)]
        facts = {"least gain over guarantee": (1.0 - worst) * step.size / step.guarantee}
        both = (exact(share, part["prediction"].iloc[0]) for share in (worst, broken))
        found.append(claim(str(name), f"{answers} answers", *both, facts=facts))
    return found


STUDY = unconverted(
    "one_step",
    "N5, N6: the gain of one exact step against its guarantee",
    cells,
    compute,
    rows,
    claims,
    tuple(STEPS),
)
