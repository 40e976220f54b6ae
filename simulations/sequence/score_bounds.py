"""T3, T4, T5, T13: norms of scores and of the gradient, and their worst cases over policies of sequences."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.tokens import Family, Tokens, Uncentred, draw

FAMILIES = ((2, 1, None), (2, 2, 1), (3, 1, None), (2, 2, None))
"""Vocabulary size, horizon and end token."""
LOGITS, DRIFT = 8.0, 8.0
"""Bounds of the logits: a token's probability is at least about 3e-4, so what is attained only in the limit is near."""
WIDTH = 0.2
"""The clip's upper width e, as practised."""
POLICIES, QUICK_POLICIES = 1000, 200
SEARCH, QUICK_SEARCH = {"starts": 256, "climbs": 2}, {"starts": 16, "climbs": 1}
POINTS, QUICK_POINTS = tuple(range(2, 13)), (2, 7, 8)
"""Numbers of points of the simplex in T13."""
FEW = 7
"""The last number of points with the bound 28/e^2."""

Sides = Callable[[Tokens, Tokens, Array], tuple[float, float]]


def power(tokens: Tokens, weights: Array) -> float:
    """Return sum_k weights_k ||W_k||^2."""
    return float(weights @ (tokens.response_scores**2).sum(axis=1))


def martingale(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T3: E||grad log P(s_T)||^2, and E sum_t ||grad log P(s_t | s_{t-1})||^2."""
    by_token = (now.of_responses(now.scores) ** 2).sum(axis=(1, 2))
    return power(now, now.response_probabilities), float(now.response_probabilities @ by_token)


def martingale_astray(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """The same, with responses drawn from another policy than the one whose scores they are."""
    by_token = (now.of_responses(now.scores) ** 2).sum(axis=(1, 2))
    return power(now, old.response_probabilities), float(old.response_probabilities @ by_token)


def capped(old: Tokens, now: Tokens, rewards: Array, cap: float = 1.0 + WIDTH) -> tuple[float, float]:
    """T4: E_0||min(rho, 1+e) W_k||^2, and (1+e) E_k||W_k||^2."""
    p, q = old.response_probabilities, now.response_probabilities
    return power(now, p * np.minimum(q / p, cap) ** 2), (1.0 + WIDTH) * power(now, q)


def uncapped(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """The same without the cap."""
    return capped(old, now, rewards, np.inf)


def _gradient(now: Tokens, rewards: Array) -> float:
    return float(np.linalg.norm((now.response_probabilities * rewards) @ now.response_scores))


def _curvature(now: Tokens, rewards: Array) -> float:
    """Return the largest |eigenvalue| of the Hessian of J = E r: E r (W W' + the Hessian of log P)."""
    scores, weights = now.response_scores, now.response_probabilities * rewards
    hessian = np.einsum("k,ki,kj->ij", weights, scores, scores)
    hessian -= np.einsum("k,kij->ij", weights, now.of_responses(now.covariances).sum(axis=1))
    return float(np.abs(np.linalg.eigvalsh(hessian)).max())


def _constants(now: Tokens, rewards: Array) -> tuple[float, float, float]:
    """Return R, L T and log V."""
    paths = now.paths
    return float(np.abs(rewards).max()), now.lipschitz * paths.horizon, float(np.log(paths.vocabulary_size))


def gradient(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T5: ||grad J|| against R sqrt(2 L T log V)."""
    r, lt, log_v = _constants(now, rewards)
    return _gradient(now, rewards), r * np.sqrt(2.0 * lt * log_v)


def smoothness(old: Tokens, now: Tokens, rewards: Array) -> tuple[float, float]:
    """T5: ||Hess J|| against T R L (2 log V + 1)."""
    r, lt, log_v = _constants(now, rewards)
    return _curvature(now, rewards), r * lt * (2.0 * log_v + 1.0)


def sharpening(statement: str, vocabulary_size: int) -> float:
    """Return the printed bound of T5 over the one derived, R sqrt(L T) for the gradient and 2 T R L for the Hessian."""
    log_v = float(np.log(vocabulary_size))
    return float(np.sqrt(2.0 * log_v)) if statement == "T5/gradient" else log_v + 0.5


class Bound(NamedTuple):
    """The two sides of a bound, what is broken for its control, and what it depends on beside the old policy."""

    sides: Sides
    broken: Sides
    make_broken: type[Tokens]
    reward: float
    drift: float


BOUNDS = {
    "T4": Bound(capped, uncapped, Tokens, 0.0, DRIFT),
    "T5/gradient": Bound(gradient, gradient, Uncentred, 1.0, 0.0),
    "T5/smoothness": Bound(smoothness, smoothness, Uncentred, 1.0, 0.0),
}


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
    return [
        *(
            Cell(
                {"what": "policies", "family": list(family), **limits, **search, "sought": not quick or family == FAMILIES[0]},
                len(BOUNDS) + 1,
            )
            for family in families
        ),
        Cell({"what": "simplex", "points": list(points), **search}),
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the worst of random points, the worst that a search finds, and the worst of something broken."""
    return _simplices(settings, seed) if settings["what"] == "simplex" else _policies(settings, seed, chunk)


def _policies(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return what becomes of one bound, or, in the last chunk, of the martingale."""
    family = Family(*settings["family"])
    if chunk < len(BOUNDS):
        name, bound = list(BOUNDS.items())[chunk]
        found = _worst(name, bound, family, settings, seed)
    else:
        found = _martingale(family, settings, seed)
    return [{"setting": family.name, **row} for row in found]


def _martingale(family: Family, settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the largest gap between the two sides of T3 over random policies, right and astray."""
    points = draw(family.bounds(settings["logits"], DRIFT, 1.0), settings["policies"], seed)
    found = []
    for how, sides in (("random", martingale), ("broken", martingale_astray)):
        gaps = [abs(left - right) / max(1.0, right) for left, right in (sides(*family.at(x)) for x in points)]
        found.append({"statement": "T3", "how": how, "estimate": max(gaps), "count": len(points)})
    return found


def _worst(name: str, bound: Bound, family: Family, settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the largest ratio of random policies, right and broken, and the largest that a search finds."""
    box = family.bounds(settings["logits"], bound.drift, bound.reward)
    points = draw(box, settings["policies"], seed)
    found: Rows = []
    for how, sides, make in (("random", bound.sides, Tokens), ("broken", bound.broken, bound.make_broken)):
        ratios = [left / right for left, right in (sides(*family.at(x, make)) for x in points)]
        found.append({"how": how, "estimate": max(ratios), "count": len(points)})
    if settings["sought"]:
        worst = gt.worst_case(
            lambda x: bound.sides(*family.at(x)), box, rng=seed, starts=settings["starts"], climbs=settings["climbs"]
        )
        found.append({"how": "sought", "estimate": worst.score, "count": worst.evaluations})
    rows = [{"statement": name, **row} for row in found]
    if name == "T4":
        return rows
    factor = sharpening(name, family.vocabulary_size)
    return rows + [{"statement": f"{name}, sharp", **row, "estimate": row["estimate"] * factor} for row in found]


def _simplex_sides(x: Array, log: Callable[[Array], Array], bound: float) -> tuple[float, float]:
    return simplex(x, log), bound


def _simplices(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    found = []
    for n, own_seed in zip(settings["points"], seed.spawn(len(settings["points"])), strict=True):
        bound = np.log(n) ** 2 if n > FEW else 28.0 * np.exp(-2.0)
        box = [(-12.0, 0.0)] * n
        for how, log in (("sought", np.log), ("broken", np.log2)):
            at = partial(_simplex_sides, log=log, bound=float(bound))
            worst = gt.worst_case(at, box, rng=own_seed, starts=settings["starts"], climbs=settings["climbs"])
            row = {"setting": f"n = {n}", "statement": "T13", "how": how, "estimate": worst.score, "count": worst.evaluations}
            found.append(row)
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst case was sought: left over right side, or their gap for T3."""
    return [
        {name: row[name] for name in ("setting", "statement", "how", "count")}
        | {"prediction": float(row["statement"] != "T3"), "estimate": row["estimate"], **EXACT}
        for result in results
        for row in result
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """T3 and the bounds on each family, by the worst of what was drawn and sought; T13 at few points and at many."""
    found = []
    policies = table[table["statement"] != "T13"]
    for (statement, setting), part in policies.groupby(["statement", "setting"], sort=False):
        if statement == "T3" and setting.startswith("T = 1,"):
            continue  # one token: both sides are the same sum
        worst = part.set_index("how")["estimate"].to_dict()
        broken, prediction = worst.pop("broken"), float(part["prediction"].iloc[0])
        both = exact(largest(list(worst.values())), prediction), exact(broken, prediction)
        found.append(claim(str(statement), str(setting), *both, facts=worst))
    simplices = table[table["statement"] == "T13"]
    numbers = simplices["setting"].str.removeprefix("n = ").astype(int)
    for setting, part in ((f"n = 2 to {FEW}", simplices[numbers <= FEW]), (f"n > {FEW}", simplices[numbers > FEW])):
        worst = part.groupby("how")["estimate"].agg(largest)
        found.append(claim("T13", setting, exact(worst["sought"], 1.0), exact(worst["broken"], 1.0)))
    return found


STUDY = unconverted(
    "score_bounds",
    "T3, T4, T5, T13: norms of scores and gradients, random policies and worst cases, exact",
    cells,
    compute,
    rows,
    claims,
    ("T3", "T4", *(f"{name}{part}" for name in ("T5/gradient", "T5/smoothness") for part in ("", ", sharp")), "T13"),
)
