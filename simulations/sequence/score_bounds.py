"""T3, T4, T5, T13: norms of scores and gradients, random policies and worst cases, exact.

The two sides of each bound are computed for random policies over sequences, and a search looks for the worst. The controls have
responses of another policy, no cap, scores that are not centred, or the logarithm to the base 2.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.seeds import child_seed, seed_of
from simulations.sequence.score_norms import (
    WIDTH,
    Sides,
    capped,
    gradient,
    gradient_sharpening,
    martingale,
    martingale_astray,
    smoothness,
    smoothness_sharpening,
    uncapped,
)
from simulations.sequence.tokens import Family, Tokens, Uncentred, draw
from simulations.statements import stated
from simulations.worst_cases import by_the_worst, ratios, sought, worst_row

T3, T5, T4, T5_GRADIENT, T5_GRADIENT_SHARP = stated("T3", "T5", "T4", "T5/gradient", "T5/gradient, sharp")
T5_SMOOTHNESS, T5_SMOOTHNESS_SHARP, T13 = stated("T5/smoothness", "T5/smoothness, sharp", "T13")

FAMILIES = ((2, 1, None), (2, 2, 1), (3, 1, None), (2, 2, None))
"""Vocabulary size, horizon and end token."""
LOGITS, DRIFT = 8.0, 8.0
"""Bounds of the logits: a token's probability is at least about 3e-4, so what is attained only in the limit is near."""
POLICIES, QUICK_POLICIES = 1000, 200
SEARCH, QUICK_SEARCH = {"starts": 256, "climbs": 2}, {"starts": 16, "climbs": 1}
POINTS, QUICK_POINTS = tuple(range(2, 13)), (2, 7, 8)
"""Numbers of points of the simplex in T13."""
FEW = 7
"""The last number of points with the bound 28/e^2."""


class Bound(NamedTuple):
    """The two sides of a bound, what is broken for its control, and what it depends on beside the old policy.

    Attributes
    ----------
    statement : Statement
    sides, broken : callable
    make_broken : type
        Makes the policies of the broken side.
    reward, drift : float
        The largest of them; 0 where the bound does not depend on it.
    sharp : Statement, optional
        The bound that is derived in the place of the printed one.
    sharpening : callable, optional
        The printed bound over the one derived, for a vocabulary size.
    """

    statement: Statement
    sides: Sides
    broken: Sides
    make_broken: type[Tokens]
    reward: float
    drift: float
    sharp: Statement | None = None
    sharpening: Callable[[int], float] = float


BOUNDS = (
    Bound(T4, capped, uncapped, Tokens, 0.0, DRIFT),
    Bound(T5_GRADIENT, gradient, gradient, Uncentred, 1.0, 0.0, T5_GRADIENT_SHARP, gradient_sharpening),
    Bound(T5_SMOOTHNESS, smoothness, smoothness, Uncentred, 1.0, 0.0, T5_SMOOTHNESS_SHARP, smoothness_sharpening),
)
OVER_POLICIES = {one.id: one for one in (T3, T4, T5_GRADIENT, T5_GRADIENT_SHARP, T5_SMOOTHNESS, T5_SMOOTHNESS_SHARP)}
"""By id, as the table names them."""


def simplex(x: Array, log: Callable[[Array], Array] = np.log) -> float:
    """Return sum x_i log^2 x_i for the softmax of x."""
    grown = np.exp(x - x.max())
    shares = grown / grown.sum()
    return float((shares * log(shares) ** 2).sum())


def cells(quick: bool) -> list[Cell]:
    """One cell for each family, a chunk for each bound, and one for the simplex; a quick run searches the smallest only."""
    limits = {"logits": LOGITS, "width": WIDTH, "policies": QUICK_POLICIES if quick else POLICIES}
    search = QUICK_SEARCH if quick else SEARCH
    families = FAMILIES[:2] if quick else FAMILIES
    points = QUICK_POINTS if quick else POINTS
    sought = {family: {"sought": not quick or family == FAMILIES[0]} for family in families}
    return [
        *(
            Cell({"what": "policies", "family": list(family), **limits, **search, **sought[family]}, len(BOUNDS) + 1)
            for family in families
        ),
        Cell({"what": "simplex", "points": list(points), **search}),
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the worst of random points, the worst that a search finds, and the worst of something broken.

    Of policies a chunk looks at one bound, and the last at the martingale.
    """
    seed = seed_of(rng)
    if settings["what"] == "simplex":
        return _simplices(settings, seed)
    family = Family(*settings["family"])
    is_bound = chunk < len(BOUNDS)
    worst = _worst(BOUNDS[chunk], family, settings, seed) if is_bound else _martingale(family, settings, seed)
    return [{"setting": family.name, **row} for row in worst]


def _martingale(family: Family, settings: Settings, seed: np.random.SeedSequence) -> Rows:
    """Return the largest gap between the two sides of T3 over random policies, right and astray."""
    points, table = draw(family.bounds(settings["logits"], DRIFT, 1.0), settings["policies"], seed), []
    for how, sides in (("random", martingale), ("broken", martingale_astray)):
        gaps = [abs(left - right) / max(1.0, right) for left, right in (sides(*family.at(x)) for x in points)]
        table.append(worst_row(T3, how, gaps, prediction=0.0))
    return table


def _worst(bound: Bound, family: Family, settings: Settings, seed: np.random.SeedSequence) -> Rows:
    """Return the largest ratio of random policies, right and broken, and the largest that a search finds."""
    box = family.bounds(settings["logits"], bound.drift, bound.reward)
    points = draw(box, settings["policies"], seed)
    worst = {
        how: ratios(sides(*family.at(x, make)) for x in points)
        for how, sides, make in (("random", bound.sides, Tokens), ("broken", bound.broken, bound.make_broken))
    }
    if settings["sought"]:
        worst["sought"] = [sought(lambda x: bound.sides(*family.at(x)), box, settings, seed).score]
    factors = {bound.statement: 1.0}
    if bound.sharp is not None:
        factors[bound.sharp] = bound.sharpening(family.vocabulary_size)
    return [worst_row(one, how, np.multiply(factor, values)) for one, factor in factors.items() for how, values in worst.items()]


def _simplex_sides(x: Array, log: Callable[[Array], Array], bound: float) -> tuple[float, float]:
    return simplex(x, log), bound


def _simplices(settings: Settings, seed: np.random.SeedSequence) -> Rows:
    """Return the largest ratio that a search finds at each number of points, right and with another logarithm."""
    table = []
    for number, n in enumerate(settings["points"]):
        own_seed = child_seed(seed, number)
        bound, where = (28.0 * np.exp(-2.0), f"n = 2 to {FEW}") if n <= FEW else (np.log(n) ** 2, f"n > {FEW}")
        for how, log in (("sought", np.log), ("broken", np.log2)):
            worst = sought(partial(_simplex_sides, log=log, bound=float(bound)), [(-12.0, 0.0)] * n, settings, own_seed)
            table.append({"setting": where, "n": n, **worst_row(T13, how, [worst.score])})
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst case was sought: left over right side, or their gap for T3."""
    return [row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """T3 and the bounds on each family, by the worst of what was drawn and sought; T13 at few points and at many."""
    for (name, setting), part in table.groupby(["statement", "setting"], sort=False):
        own, control, worst = by_the_worst(part)
        if name == T13.id:
            yield T13.claim(setting, own, control)
        elif name != T3.id or not setting.startswith("T = 1,"):  # of one token both sides of T3 are the same sum
            yield OVER_POLICIES[name].claim(setting, own, control, worst)
