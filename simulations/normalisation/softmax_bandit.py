"""R6: slope, smoothness and convergence of the softmax bandit, exact.

The problem is one prompt with a logit for each response. Bounds are compared with the worst of random bandits and of those that a
search finds. Rates and constants are compared with long paths. In the controls the gradient is halved, rewards lie outside [0,
1], or steps have the wrong sign.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import exact, farthest, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import divided_gap_limit, softmax_gap_bound, softmax_gap_limit
from simulations.normalisation.softmax_ascent import (
    ASCENT,
    ASTRAY,
    RULES,
    STEP,
    Bandit,
    Rule,
    Sides,
    random_rewards,
    sharp_slope,
    sharp_smoothness,
    slope,
    smoothness,
)
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.worst_cases import by_the_worst, ratios, sought, worst_row

BANDITS, SLOPE, SHARP_SLOPE, SMOOTHNESS = stated("R6", "R6/slope", "R6/slope, sharp", "R6/smoothness")
SHARP_SMOOTHNESS, GAP, SHARPER_GAP, LINEAR_GAP = stated("R6/smoothness, sharp", "R6/gap", "R6/gap, sharper", "R6/gap, linear")
RATE, RATE_CONSTANT, DIVIDED, DIVIDED_CONSTANT = stated("R6/rate", "R6/rate, constant", "R6/divided", "R6/divided, constant")

RESPONSES, QUICK_RESPONSES = (2, 3, 5, 10), (2, 3)
LOGITS = 8.0
"""Bound of the logits in the search."""
WIDE = 10.0
"""The broken bandits of smoothness have rewards of up to this size, not in [0, 1]."""
DRAWN, QUICK_DRAWN = 2000, 200
PATHS, QUICK_PATHS = 20, 5
UPDATES = 10_000
"""Along a path: what is off the limiting law by order (log t)/t is then below the margins."""
SOUGHT_UPDATES = 2000
"""In the search: the worst is reached by t = 5 K, where the best response takes over."""
SEARCH, QUICK_SEARCH = {"starts": 64, "climbs": 2}, {"starts": 16, "climbs": 1}
CONSTANT_MARGIN = 0.05
"""Relative: a budget known to 5%."""

POINTWISE: dict[Statement, tuple[Sides, float]] = {
    SLOPE: (slope, 0.5),
    SHARP_SLOPE: (sharp_slope, 0.5),
    SMOOTHNESS: (smoothness, 2.0 * WIDE),
    SHARP_SMOOTHNESS: (sharp_smoothness, 2.0 * WIDE),
}
"""The two sides of a bound at a point, and the scale by which they are broken. It scales the gradient, or rewards that should be
in [0, 1]. Up to a constant that no Hessian sees, these are then in [-10, 10]."""


GAPS: dict[Statement, Callable[[int], float]] = {
    GAP: lambda k: 5.0 * k**2,
    SHARPER_GAP: partial(softmax_gap_bound, step=STEP),
    LINEAR_GAP: lambda k: k / STEP,
}
"""What t times the gap is at most, t counted from 1 at the start."""


LAWS = ((RATE, RATE_CONSTANT, 1.0, "undivided", "divided"), (DIVIDED, DIVIDED_CONSTANT, 2.0, "divided", "undivided"))
"""Of which paths an exponent and a constant are read, and of which paths the broken exponent."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each number of responses, a chunk for each bound that is searched, for paths and for limits."""
    counts: dict[str, Any] = {"bandits": QUICK_DRAWN if quick else DRAWN, "paths": QUICK_PATHS if quick else PATHS}
    counts |= {"updates": UPDATES, "sought_updates": SOUGHT_UPDATES, "logits": LOGITS}
    search = QUICK_SEARCH if quick else SEARCH
    return [Cell({"n_responses": k, **counts, **search}, len(POINTWISE) + 3) for k in (QUICK_RESPONSES if quick else RESPONSES)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the worst of the bounds, at points and along paths, and the laws that long paths end in."""
    bounds = list(POINTWISE)
    if chunk < len(bounds):
        return [_sought_point(bounds[chunk], settings, rng)]
    return (_points, _bounded, _limits)[chunk - len(bounds)](settings, rng)


def _sought_point(statement: Statement, settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """Return the largest left over right side that a search finds."""
    k = settings["n_responses"]
    box = [(-settings["logits"], settings["logits"])] * k + [(0.0, 1.0)] * k
    worst = sought(partial(_at, POINTWISE[statement][0]), box, settings, rng)
    return worst_row(statement, "sought", [worst.score])


def _at(sides: Sides, x: Array) -> tuple[float, float]:
    return sides(Bandit(*np.split(x, 2)), 1.0)


def _points(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the largest left over right side at random points, right and broken."""
    k = settings["n_responses"]
    drawn = [
        Bandit(rng.normal(scale=rng.choice([0.5, 2.0, 5.0]), size=k), random_rewards(rng, k)) for _ in range(settings["bandits"])
    ]
    return [
        worst_row(statement, how, ratios(sides(bandit, scale) for bandit in drawn))
        for statement, (sides, broken) in POINTWISE.items()
        for how, scale in (("random", 1.0), ("broken", broken))
    ]


def _bounded(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the largest t times gap over its bound, over random rewards and over those that a search finds."""
    k = settings["n_responses"]
    drawn = [random_rewards(rng, k) for _ in range(settings["paths"])]
    of_search = sought(lambda x: (_largest(ASCENT, x, settings["sought_updates"]), 1.0), [(0.0, 1.0)] * k, settings, seed_of(rng))
    worst = {
        "random": [_largest(ASCENT, rewards, settings["updates"]) for rewards in drawn],
        "broken": [_largest(ASTRAY, rewards, settings["updates"]) for rewards in drawn],
        "sought": [of_search.score],
    }
    return [
        worst_row(statement, how, np.divide(gaps, bound(k))) for statement, bound in GAPS.items() for how, gaps in worst.items()
    ]


def _largest(rule: Rule, rewards: Array, updates: int) -> float:
    """Return the most that t times the gap is along a path."""
    return float((np.arange(1, updates + 1) * rule.gaps(rewards, updates)).max())


def _limits(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the exponents and constants of gap ~ constant/t^power, from the growth of gap^(-1/power) in the second half."""
    k, updates = settings["n_responses"], settings["updates"]
    half, laws = updates // 2, []
    for path in range(settings["paths"]):
        rewards = random_rewards(rng, k)
        short = np.delete(rewards.max() - rewards, rewards.argmax())
        for how, rule in RULES.items():
            gaps, power = rule.gaps(rewards, updates + 1)[[half, updates]], 1.0 + rule.power
            limit = divided_gap_limit(short, STEP) if rule.power else softmax_gap_limit(k, STEP)
            growth = np.diff(gaps ** (-1.0 / power))[0] / (updates - half)
            exponent = np.diff(np.log(gaps))[0] / np.log(updates / half)
            common = {"how": how, "path": path}
            laws.append({"statement": "exponent", "estimate": float(exponent), "prediction": -power, **common})
            laws.append({"statement": "constant", "estimate": float(growth**-power / limit), "prediction": 1.0, **common})
    return laws


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and how its worst case was sought, left over right side; one for each exponent and constant."""
    k = settings["n_responses"]
    return [{"setting": f"K = {k}", "n_responses": k} | row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The bounds by the worst of what was drawn and sought; exponents and constants by the path that is farthest off."""
    for setting, part in table.groupby("setting", sort=False):
        for statement in (*POINTWISE, *GAPS):
            yield statement.claim(setting, *by_the_worst(part[part["statement"] == statement.id]))
        laws = part[part["path"].notna()].set_index(["statement", "how", "path"])["estimate"].sort_index()
        for rate, constant, power, right, other in LAWS:
            exponents = (laws["exponent", how] for how in (right, other))
            own, control = (exact(one[farthest(one, -power)], -power) for one in exponents)
            yield rate.claim(setting, own, control)
            constants = (laws["constant", how] for how in (right, f"{right}, turned"))
            own, control = (exact(largest((one - 1.0).abs()), CONSTANT_MARGIN) for one in constants)
            yield constant.claim(setting, own, control)
