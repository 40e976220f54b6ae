"""N1, N2, N3: slope and curvature of a success probability against the reward's variance, random policies and worst cases."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import GREATEST_LOCAL_CURVATURE, curvature_bound, local_curvature_bound, success_hessian
from simulations.claims import claim, unconverted
from simulations.normalisation.policies import Policy, Unnormalised

FAMILIES = ((2, 1), (3, 1), (3, 2), (5, 1), (5, 3), (10, 1), (10, 5))
"""Numbers of responses, and of correct ones."""
SOUGHT = 3
"""The most responses with which the worst case is sought; more add nothing to it, because it needs three."""
LOGITS = 8.0
"""Bound of the logits, so that p is at least about 1e-7: what is attained only as p falls to 0 is near there."""
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


BOUNDS: dict[str, Sides] = {
    "N1": curvature,
    "N1/sharp": sharp_curvature,
    "N2": steepness,
    "N2/sharp": sharp_steepness,
    "N3": local_curvature,
    "N3/sharp": sharp_local_curvature,
}


class Family(NamedTuple):
    """Policies with so many responses, so many of them correct; random ones, and those numbered by a parameter vector."""

    n_responses: int
    n_correct: int

    @property
    def name(self) -> str:
        """In words."""
        return f"K = {self.n_responses}, {self.n_correct} correct"

    @property
    def correct(self) -> Flags:
        """Which responses are correct, shape (K,)."""
        return np.arange(self.n_responses) < self.n_correct

    def draw(self, rng: np.random.Generator, make: type[Policy]) -> tuple[Policy, Policy]:
        """Return a random policy, and one within the radius sqrt(V)/X of it, as often along the gradient as not."""
        features = rng.normal(size=(self.n_responses, rng.integers(1, self.n_responses + 1)))
        lean = rng.normal() * self.correct @ features  # to the correct responses, or away from them
        theta = rng.normal(size=lean.size) + lean
        theta *= rng.uniform(0.0, 2.0 * LOGITS) / np.ptp(features @ theta)
        here = make(features @ theta, features, self.correct)
        direction = rng.normal(size=theta.size) if rng.uniform() < 0.5 else rng.choice([-1.0, 1.0]) * here.gradient
        return here, _within(here, direction, rng.uniform() ** 0.5)

    def bounds(self) -> list[tuple[float, float]]:
        """Return the box of parameters: logits, features, and where within the radius."""
        k = self.n_responses
        return [(-LOGITS, LOGITS)] * k + [(-1.0, 1.0)] * (k * k + k) + [(0.0, 1.0)]

    def at(self, x: Array) -> tuple[Policy, Policy]:
        """Return the two policies of a parameter vector."""
        k = self.n_responses
        logits, features, direction = x[:k], x[k : k * k + k].reshape(k, k), x[k * k + k : -1]
        here = Policy(logits, features, self.correct)
        return here, _within(here, direction, x[-1])


def _within(here: Policy, direction: Array, share: float) -> Policy:
    """Return the policy a share of the radius away."""
    radius = np.sqrt(here.variance) / here.scale
    return here.moved(share * radius * direction / (np.linalg.norm(direction) + 1e-12))


def cells(quick: bool) -> list[Cell]:
    """One cell for each family, a chunk for each bound that is searched; a quick run searches only the smallest."""
    counts = {"policies": QUICK_POLICIES if quick else POLICIES, "points": QUICK_POLICIES if quick else POINTS, "logits": LOGITS}
    counts |= QUICK_SEARCH if quick else SEARCH
    most = 2 if quick else SOUGHT
    sought = {family: family[0] <= most for family in FAMILIES}
    return [Cell({"family": list(family), "sought": one, **counts}, 1 + len(BOUNDS) * one) for family, one in sought.items()]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return what is drawn, first, and then the worst that a search finds for each bound."""
    family = Family(*settings["family"])
    if chunk == 0:
        return _drawn(family, settings, seed)
    name, sides = list(BOUNDS.items())[chunk - 1]
    search = {"starts": settings["starts"], "climbs": settings["climbs"]}
    worst = gt.worst_case(partial(_at, sides, family), family.bounds(), rng=seed, **search)
    return [{"statement": name, "how": "sought", "estimate": worst.score, "prediction": 1.0}]


def _drawn(family: Family, settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the worst of random policies, right and broken, and some policies themselves."""
    found: list[dict[str, Any]] = []
    for how, make in (("random", Policy), ("broken", Unnormalised)):
        rng = np.random.default_rng(seed)  # the same policies, with derivatives that are wrong
        pairs = [family.draw(rng, make) for _ in range(settings["policies"])]
        for name, sides in BOUNDS.items():
            ratio = largest([left / right for left, right in (sides(*pair) for pair in pairs)])
            found.append({"statement": name, "how": how, "estimate": ratio, "prediction": 1.0})
        found += [{"how": how, "prediction": 0.0, **row} for row in _identities(family, pairs)]
        if how == "random":
            found += _points(family, pairs[: settings["points"]])
    return found


def _at(sides: Sides, family: Family, x: Array) -> tuple[float, float]:
    return sides(*family.at(x))


def _identities(family: Family, pairs: list[tuple[Policy, Policy]]) -> list[dict[str, Any]]:
    """Return how far Hessians are from the closed form, and those of two responses from their norm, in units of X^2."""
    gaps = {"N1/Hessian": [_gap(one) for one, _ in pairs]}
    if family.n_responses == 2:
        gaps["N1/two responses"] = [_gap_of_norm(one) for one, _ in pairs]
    return [{"statement": name, "estimate": largest(found)} for name, found in gaps.items()]


def _gap(policy: Policy) -> float:
    closed = success_hessian(policy.probabilities, policy.correct, policy.features)
    return float(np.abs(policy.hessian - closed).max()) / policy.scale**2


def _gap_of_norm(policy: Policy) -> float:
    apart = float(((policy.features[0] - policy.features[1]) ** 2).sum())
    norm = policy.variance * abs(policy.failure - policy.success) * apart
    return abs(policy.curvature - norm) / policy.scale**2


def _points(family: Family, pairs: list[tuple[Policy, Policy]]) -> list[dict[str, Any]]:
    """Return the curvature of policies, and that within the radius, each with the most that it can be."""
    k, found = family.n_responses, []
    for here, near in pairs:
        p, radius = here.success, np.sqrt(here.variance)
        most = {"here": curvature_bound(p, k), "within the radius": local_curvature_bound(p, radius, k)}
        for (statement, bound), one in zip(most.items(), (here, near), strict=True):
            row = {"statement": statement, "how": "point", "estimate": one.curvature / one.scale**2, "prediction": float(bound)}
            found.append(row | {"variance": here.variance, "success": p})
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and how its worst case was sought, left over right side; one for each identity and each point."""
    k, correct = settings["family"]
    common = {"setting": Family(k, correct).name, "n_responses": k, "n_correct": correct}
    blank = {"variance": np.nan, "success": np.nan}
    return [common | blank | row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each bound and identity by the worst of what was drawn and sought; the papers' are about one correct response."""
    found = []
    worst = table[table["how"] != "point"]
    for (statement, setting), part in worst.groupby(["statement", "setting"], sort=False):
        name = str(statement) if "/" in str(statement) or (part["n_correct"] == 1).all() else f"{statement}/several"
        estimates, prediction = part.set_index("how")["estimate"].to_dict(), float(part["prediction"].iloc[0])
        broken = estimates.pop("broken")
        both = exact(largest(list(estimates.values())), prediction), exact(broken, prediction)
        found.append(claim(name, str(setting), *both, facts=estimates))
    return found


STUDY = unconverted(
    "curvature",
    "N1, N2, N3: slope and curvature against reward variance, random policies and worst cases, exact",
    cells,
    compute,
    rows,
    claims,
    (
        *(f"{name}{part}" for name in ("N1", "N2", "N3") for part in ("", "/several", "/sharp")),
        "N1/Hessian",
        "N1/two responses",
    ),
)
