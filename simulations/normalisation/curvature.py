"""N1, N2, N3: slope and curvature against reward variance, random policies and worst cases, exact.

Each bound is compared with the worst of random policies and, where they are small, of those that a search finds. In the control
the derivatives are taken with the softmax's denominator held fixed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import GREATEST_LOCAL_CURVATURE, curvature_bound, local_curvature_bound, success_hessian
from simulations.normalisation.families import LOGITS, Family
from simulations.normalisation.policies import Policy, Unnormalised
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.worst_cases import by_the_worst, ratios, sought, worst_row

CURVATURE, SHARP_CURVATURE, HESSIAN, TWO_ANSWERS, STEEPNESS = stated("N1", "N1/sharp", "N1/Hessian", "N1/two responses", "N2")
SHARP_STEEPNESS, LOCAL_CURVATURE, SHARP_LOCAL_CURVATURE = stated("N2/sharp", "N3", "N3/sharp")
SEVERAL = {one.id: stated(f"{one.id}/several") for one in (CURVATURE, STEEPNESS, LOCAL_CURVATURE)}

FAMILIES = ((2, 1), (3, 1), (3, 2), (5, 1), (5, 3), (10, 1), (10, 5))
"""Numbers of responses, and of correct ones."""
SOUGHT = 3
"""The most responses with which the worst case is sought; more add nothing to it, because it needs three."""
POLICIES, QUICK_POLICIES = 2000, 100
POINTS = 400
"""Of how many random policies the table has the curvature itself, for the figure."""
SEARCH, QUICK_SEARCH = {"starts": 128, "climbs": 2}, {"starts": 8, "climbs": 1}

Sides = Callable[[Policy, Policy], tuple[float, float]]


def steepness(here: Policy, near: Policy) -> tuple[float, float]:
    """N2: ||grad p|| against X/2."""
    return here.slope, here.scale / 2.0


def sharp_steepness(here: Policy, near: Policy) -> tuple[float, float]:
    """||grad p|| against sqrt(2) V X."""
    return here.slope, np.sqrt(2.0) * here.variance * here.scale


def curvature(here: Policy, near: Policy) -> tuple[float, float]:
    """N1: ||Hess p|| against 4 X^2 V."""
    return here.curvature, 4.0 * here.variance * here.scale**2


def sharp_curvature(here: Policy, near: Policy) -> tuple[float, float]:
    """||Hess p|| against X^2 V max(1/2, 2|1 - 2p|), without the 1/2 for two responses."""
    least = 0.5 if here.logits.size > 2 else 0.0
    return here.curvature, here.variance * max(least, 2.0 * abs(here.failure - here.success)) * here.scale**2


def local_curvature(here: Policy, near: Policy) -> tuple[float, float]:
    """N3: ||Hess p|| within the radius against (5/2) X^2 sqrt(V)."""
    return near.curvature, 2.5 * np.sqrt(here.variance) * here.scale**2


def sharp_local_curvature(here: Policy, near: Policy) -> tuple[float, float]:
    """The same against 0.587 X^2 sqrt(V)."""
    return near.curvature, GREATEST_LOCAL_CURVATURE * np.sqrt(here.variance) * here.scale**2


BOUNDS: dict[Statement, Sides] = {
    CURVATURE: curvature,
    SHARP_CURVATURE: sharp_curvature,
    STEEPNESS: steepness,
    SHARP_STEEPNESS: sharp_steepness,
    LOCAL_CURVATURE: local_curvature,
    SHARP_LOCAL_CURVATURE: sharp_local_curvature,
}


def cells(quick: bool) -> list[Cell]:
    """One cell for each family, a chunk for each bound that is searched; a quick run searches only the smallest."""
    counts = {"policies": QUICK_POLICIES if quick else POLICIES, "points": QUICK_POLICIES if quick else POINTS, "logits": LOGITS}
    counts |= QUICK_SEARCH if quick else SEARCH
    most = 2 if quick else SOUGHT
    sought = {family: family[0] <= most for family in FAMILIES}
    return [Cell({"family": list(family), "sought": one, **counts}, 1 + len(BOUNDS) * one) for family, one in sought.items()]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return what is drawn, first, and then the worst that a search finds for each bound."""
    family = Family(*settings["family"])
    if chunk == 0:
        return _drawn(family, settings, rng)
    statement, sides = list(BOUNDS.items())[chunk - 1]
    worst = sought(partial(_at, sides, family), family.bounds(), settings, rng)
    return [worst_row(statement, "sought", [worst.score])]


def _drawn(family: Family, settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the worst of random policies, right and broken, and some policies themselves."""
    table: Rows = []
    for how, make in (("random", Policy), ("broken", Unnormalised)):
        drawing = np.random.default_rng(seed_of(rng))  # the same policies, with derivatives that are wrong
        pairs = [family.draw(drawing, make) for _ in range(settings["policies"])]
        table += [worst_row(one, how, ratios(sides(*pair) for pair in pairs)) for one, sides in BOUNDS.items()]
        table.append(worst_row(HESSIAN, how, [_gap(one) for one, _ in pairs], 0.0))
        if family.n_responses == 2:
            table.append(worst_row(TWO_ANSWERS, how, [_gap_of_norm(one) for one, _ in pairs], 0.0))
        if how == "random":
            table += _points(family, pairs[: settings["points"]])
    return table


def _at(sides: Sides, family: Family, x: Array) -> tuple[float, float]:
    return sides(*family.at(x))


def _gap(policy: Policy) -> float:
    """Return how far a Hessian is from the closed form, in units of X^2."""
    closed = success_hessian(policy.probabilities, policy.correct, policy.features)
    return float(np.abs(policy.hessian - closed).max()) / policy.scale**2


def _gap_of_norm(policy: Policy) -> float:
    """Return how far the norm of a Hessian of two responses is from the closed form, in units of X^2."""
    apart = float(((policy.features[0] - policy.features[1]) ** 2).sum())
    norm = policy.variance * abs(policy.failure - policy.success) * apart
    return abs(policy.curvature - norm) / policy.scale**2


def _points(family: Family, pairs: list[tuple[Policy, Policy]]) -> Rows:
    """Return the curvature of policies, and that within the radius, each with the most that it can be."""
    k, points = family.n_responses, []
    for here, near in pairs:
        p, radius = here.success, np.sqrt(here.variance)
        most = {"here": curvature_bound(p, k), "within the radius": local_curvature_bound(p, radius, k)}
        for (statement, bound), one in zip(most.items(), (here, near), strict=True):
            row = {"statement": statement, "how": "point", "estimate": one.curvature / one.scale**2, "prediction": float(bound)}
            points.append(row | {"variance": here.variance, "success": p})
    return points


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and how its worst case was sought, left over right side; one for each identity and each point."""
    family = Family(*settings["family"])
    common = {"setting": family.name, "n_responses": family.n_responses, "n_correct": family.n_correct, **EXACT}
    return [common | row for result in results for row in result]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each bound and identity by the worst of what was drawn and sought; the papers' are about one correct response."""
    by_id = {one.id: one for one in (*BOUNDS, HESSIAN, TWO_ANSWERS)}
    worst = table[table["how"] != "point"]
    for (name, setting, correct), part in worst.groupby(["statement", "setting", "n_correct"], sort=False):
        statement = SEVERAL.get(name, by_id[name]) if correct > 1 else by_id[name]
        yield statement.claim(setting, *by_the_worst(part))
