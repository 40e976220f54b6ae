"""T6, T7, T8: what updates off policy estimate, against the drift, exact.

On random trees the expected update is compared with the gradients that it may estimate, as a function of how far the policy has
moved. The controls have another ratio, clip or mean in the estimator, or updates that are turned.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest, most
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.seeds import seed_of
from simulations.sequence.parts import NOTICEABLE, generator_of, of_length, random_problem
from simulations.sequence.policy_pair import estimators, measured_updates
from simulations.statements import stated

T6, T6_PRINTED, T6_MOST, T6_CORRECTED, T6_NO_RATIO = stated("T6", "T6/printed", "T6/most", "T6/corrected", "T6/no ratio")
T6_CLIPPED, T7, T7_PRINTED, T7_LEAVE_ONE_OUT = stated("T6/clipped", "T7", "T7/printed", "T7/leave-one-out")
T7_OWN_MEAN, T7_CORRECTED, T7_DIRECTION, T8, T8_TOKEN = stated("T7/own mean", "T7/corrected", "T7/direction", "T8", "T8/token")
T8_GRADIENT = stated("T8/gradient")

TREES, QUICK_TREES = {1: 128, 2: 192, 4: 192, 6: 192, 8: 192}, {1: 32, 2: 32, 4: 32}
"""How many random trees of each horizon. At the level of a whole report, 192 tell a share of 0.3 from a half, 128 one of 0.27,
and 32 one of 0.03."""
TREES_A_CHUNK = 16
DRIFTS = (0.03, 0.1, 0.14, 0.2, 0.28, 0.4, 0.63, 1.0)
"""Lengths of theta_k - theta_0, where scores are 1-Lipschitz: a token's log ratio is at most twice that."""
JUDGED = (0.1, 0.4, 1.0)
"""The drifts at which it is judged what holds in most trees; those along the gradient are a curve besides."""
DIRECTIONS = ("random", "learning")
"""Any direction, or along the gradient at the old policy, as training goes."""
VOCABULARY_SIZE, DIMENSION = 2, 6
LARGE = {"horizon": 8, "dimension": 200}
"""Trees with many parameters, on which only the clip by sign is examined, along the gradient.

Six parameters are shared by as many as 255 prefixes.
"""


def cells(quick: bool) -> list[Cell]:
    """One cell for each horizon, split by trees, each of which is exact; quick takes fewer of the same, and no large ones."""
    small = [
        Cell({"horizon": horizon, "trees": TREES_A_CHUNK}, trees // TREES_A_CHUNK, shared=True)
        for horizon, trees in (QUICK_TREES if quick else TREES).items()
    ]
    large = Cell(LARGE | {"trees": TREES_A_CHUNK}, TREES[LARGE["horizon"]] // TREES_A_CHUNK, shared=True)
    return small if quick else [*small, large]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return distances, cosines and variances of the exact updates on some trees, for all directions and drifts."""
    first = chunk * settings["trees"]
    trees = range(first, first + settings["trees"])
    return [row for tree in trees for row in _on_tree(settings, generator_of(tree, seed_of(rng)), tree)]


def _on_tree(settings: Settings, rng: np.random.Generator, tree: int) -> Iterator[dict[str, Any]]:
    dimension, is_large = settings.get("dimension", DIMENSION), "dimension" in settings
    problem = random_problem(rng, VOCABULARY_SIZE, settings["horizon"], None, n_prompts=1, dimension=dimension)
    old = problem.at(problem.theta)
    names = ("token", "token, clipped") if is_large else tuple(estimators())
    away = rng.normal(size=problem.policy.dimension)
    for direction, vector in zip(DIRECTIONS, (away, old.moments.gradient), strict=True):
        if is_large and direction != "learning":
            continue
        for drift in DRIFTS if direction == "learning" and not is_large else JUDGED:
            now = problem.at(old.theta + of_length(drift, vector))
            for row in measured_updates(problem, now, old, names):
                yield {"direction": direction, "drift": drift, "tree": tree, **row}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each tree, direction, drift, estimator and quantity."""
    common = {"horizon": settings["horizon"], "dimension": settings.get("dimension", DIMENSION), **EXACT}
    return [
        common | {"prediction": 0.0 if row["quantity"].startswith("to ") else np.nan} | row
        for result in results
        for row in result
    ]


IDENTITIES = (
    (T6_CORRECTED, "token", "to surrogate", "none"),
    (T7_PRINTED, "tic", "to current", "none"),
    (T7_LEAVE_ONE_OUT, "trajectory", "to current", "none"),
    (T7_OWN_MEAN, "tic, unclipped", "to shrunk", "tic"),
    (T7_CORRECTED, "tic", "to kept", "tic, unclipped"),
)
"""Statement, estimator, the distance that is zero, and the estimator of the control."""


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """What holds on every tree, at every direction and drift, by horizon; what holds on most trees, by setting."""
    small = table[table["dimension"] == DIMENSION]
    for horizon, part in small.groupby("horizon"):
        yield from _on_every_tree(f"T = {horizon}", part)
    judged = table[table["drift"].isin(JUDGED)]
    for (dimension, horizon, direction, drift), part in judged.groupby(
        ["dimension", "horizon", "direction", "drift"], sort=False
    ):
        many = "" if dimension == DIMENSION else f", {dimension} parameters"
        yield from _on_most_trees(f"T = {horizon}{many}, {direction}, drift {drift:g}", _by_tree(part), horizon, bool(many))


def _on_every_tree(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    worst = part.groupby(["estimator", "quantity"])["estimate"].agg(largest)
    for statement, estimator, quantity, broken in IDENTITIES:
        other = quantity if (broken, quantity) in worst.index else "to current"
        yield statement.claim(setting, exact(worst[estimator, quantity], 0.0), exact(worst[broken, other], 0.0))
    trees = _by_tree(part)
    leads = trees["to old"] - trees["to current"]
    own, control = (exact(largest(leads[name]), 0.0) for name in ("token", "trajectory"))
    yield T6_PRINTED.claim(setting, own, control)


def _on_most_trees(setting: str, trees: pd.DataFrame, horizon: int, is_large: bool) -> Iterator[Claim]:
    along = trees["cosine"]
    facts = {"nats a token": trees["nats a token", "none"].mean(), "share of tokens clipped": trees["clipped", "none"].mean()}
    judged = [(T6_CLIPPED, along["token, clipped"] > 0.0, along["token"] < 0.0)]
    if not is_large:
        facts |= {f"mean cosine, {name}": along[name].mean() for name in ("token", "none", "tic")}
        nearer = trees["to old"] < trees["to current"]
        judged += [(T6_MOST, nearer["token"], nearer["trajectory"]), (T6_NO_RATIO, nearer["none"], nearer["trajectory"])]
    if not is_large and horizon > 1:  # of one token, the update without any ratio is along the gradient
        judged.append((T7_DIRECTION, along["tic"] > along["none"], along["turned"] > along["none"]))
        for statement, best in ((T8_TOKEN, along["token"]), (T8_GRADIENT, 1.0)):
            judged.append((statement, *(best - along[name] <= NOTICEABLE for name in ("none", "turned"))))
    for statement, holds, control in judged:
        yield statement.claim(setting, most(holds), most(control), facts=facts)


def _by_tree(part: pd.DataFrame) -> pd.DataFrame:
    """Return estimates with a row for each tree, direction and drift, and a column for each quantity and estimator."""
    wide = part.pivot(index=["tree", "direction", "drift"], columns=["quantity", "estimator"], values="estimate")
    if wide["cosine"].isna().any(axis=None):
        raise ValueError("every cosine must be a number")
    return wide
