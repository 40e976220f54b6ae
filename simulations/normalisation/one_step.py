"""N5, N6: the gain of one exact step against its guarantee, on random problems and at the worst found.

A guarantee says which share of the first-order gain curvature takes at most. In the control the step is too long for it.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from grpo_theory.harness import check, rows
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.normalisation.ascent import SHARP_STEPS
from simulations.statements import stated
from simulations.worst_cases import worst_of

LARGEST_THETA = 12.0


class Step(NamedTuple):
    """A step of size/X^2 along grad J/V^power, and c of its guarantee c ||grad J||^2/(X^2 V^power); and a size that breaks it."""

    size: float
    power: float
    guarantee: float
    too_long: float = 30.0


STEPS = {
    "N5/gain": Step(1.0, 0.0, 0.5),
    "N5/gain, sharp": Step(SHARP_STEPS[0], 0.0, plain_gain_constant(SHARP_STEPS[0])),
    "N6/gain": Step(0.5, 0.5, 3.0 / 16.0),
    "N6/gain, printed step": Step(0.5, 0.5, divided_gain_constant(0.5), too_long=3.0),
    "N6/gain, sharp": Step(SHARP_STEPS[1], 0.5, divided_gain_constant(SHARP_STEPS[1])),
}


def gains(features, theta, step):
    """Return the gain of J, the first answer's probability, by a step along its gradient, and that gain to first order.

    Features (R, K, d) have spectral norm 1, theta is (R, d).  Log odds move by differences: small gains have all their digits.
    """
    logits = (features @ theta[..., None])[..., 0]
    p = softmax(logits, axis=-1)
    first, rest = p[:, 0], p[:, 1:].sum(axis=1)
    pull = -first[:, None] * p
    pull[:, 0] = first * rest
    gradient = (pull[:, None, :] @ features)[:, 0]
    scale = step.size / (first * rest) ** step.power
    moved = scale[:, None] * (features @ gradient[..., None])[..., 0]
    others = softmax(logits[:, 1:], axis=-1)
    growth = np.expm1(moved[:, 0] - np.log1p((others * np.expm1(moved[:, 1:])).sum(axis=1)))
    return first * rest * growth / (rest + first * (1.0 + growth)), scale * (gradient**2).sum(axis=1)


def draw(answers, count, rng):
    """Return features (R, K, K) of spectral norm 1, from nearly of rank one to well conditioned, and theta (R, K)."""
    features = rng.normal(size=(count, answers, answers)) * 10.0 ** rng.uniform(-2.0, 0.0, size=(count, 1, answers))
    direction = rng.normal(size=(count, answers))
    length = rng.uniform(0.0, LARGEST_THETA, size=(count, 1))
    return normalised(features), length * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def normalised(features):
    """Return features (R, K, d) divided by their spectral norms."""
    return features / np.maximum(np.linalg.norm(features, 2, axis=(-2, -1)), 1e-12)[:, None, None]


def cases(quick):
    """Each guarantee with each number of answers; the worst is sought where there are 6 or 12 parameters."""
    return [
        {"answers": k, "guarantee": name, "problems": 500 if quick else 5000}
        | {"starts": (32 if quick else 256) * (k <= (2 if quick else 3)), "climbs": 1 if quick else 2}
        for k in ((2, 4) if quick else range(2, 9))
        for name in STEPS
    ]


@check(*stated(*STEPS), cases=cases, broken={"starts": 0, "too_long": True}, setting="{answers} answers")
def guaranteed(answers, guarantee, problems, starts, climbs, rng, too_long=False):
    """The share of the first-order gain that curvature takes, at worst, against its bound."""
    step = STEPS[guarantee]
    bound = 1.0 - step.guarantee / step.size

    def taken(features, theta):
        exact, first_order = gains(features, theta, step._replace(size=step.too_long if too_long else step.size))
        return 1.0 - exact / first_order

    def sides(x):
        features, theta = x[: answers**2].reshape(1, answers, answers), x[None, answers**2 :]
        return float(taken(normalised(features), theta)[0]), bound

    box = [(-1.0, 1.0)] * answers**2 + [(-LARGEST_THETA, LARGEST_THETA)] * answers
    drawn = float(taken(*draw(answers, problems, rng)).max()), bound
    worst, _, facts = worst_of([drawn], sides, box, rng, starts, climbs, bound)
    return {guarantee: (worst, bound, facts | {"least gain over guarantee": (1.0 - worst) / (1.0 - bound)})}


@rows(cases=[{"answers": k, "points": 60} for k in range(2, 9)])
def points(answers, points, rng):
    """Gains and guaranteed gains of random problems, for the figure."""
    features, theta = draw(answers, points, rng)
    for name, step in STEPS.items():
        exact, first_order = gains(features, theta, step)
        for gain, most in zip(exact, first_order, strict=True):
            yield {"how": "point", "guarantee": name, "prediction": step.guarantee / step.size * most, "estimate": gain}
