"""T6, T7, T8: what the expected update off policy is the gradient of, against how far the policy has moved, on trees."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest, most
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.parts import NOTICEABLE, composed, cosine, random_problem, turned
from simulations.sequence.tokens import Tokens

TREES, QUICK_TREES = {1: 128, 2: 192, 4: 192, 6: 192, 8: 192}, {1: 32, 2: 32, 4: 32}
"""How many random trees of each horizon: 192 tell a share of 0.3 from a half at the level of a whole report, 128 one of 0.27,
32 one of 0.03."""
TREES_A_CHUNK = 16
DRIFTS = (0.03, 0.1, 0.14, 0.2, 0.28, 0.4, 0.63, 1.0)
"""Lengths of theta_k - theta_0, where scores are 1-Lipschitz: a token's log ratio is at most twice that."""
JUDGED = (0.1, 0.4, 1.0)
"""The drifts at which it is judged what holds in most trees; those along the gradient are a curve besides."""
DIRECTIONS = ("random", "learning")
"""Any direction, or along the gradient at the old policy, as training goes."""
VOCABULARY_SIZE, DIMENSION, GROUP_SIZE = 2, 6, 8
LARGE = {"horizon": 8, "dimension": 200}
"""Trees with many parameters, on which the clip by sign alone is looked at, along the gradient.

Six parameters are shared by as many as 255 prefixes.
"""
RATIOS = ("none", "token", "geometric", "trajectory")
LOW = HIGH = 0.2
"""The widths of the clips."""


def _estimators() -> dict[str, gt.Estimator]:
    return {
        **{ratio: composed("rloo", ratio) for ratio in RATIOS},
        "token, clipped": composed("rloo", "token", "by sign"),
        "trajectory, clipped": composed("rloo", "trajectory", "upper only"),
        "tic": find("tic_grpo"),
        "tic, unclipped": composed("dr_grpo", "trajectory", "none", "constant"),
    }


def cells(quick: bool) -> list[Cell]:
    """One cell for each horizon, split by trees, each of which is exact; quick takes fewer of the same, and no large ones."""
    found = [
        Cell({"horizon": horizon, "trees": TREES_A_CHUNK}, trees // TREES_A_CHUNK, shared=True)
        for horizon, trees in (QUICK_TREES if quick else TREES).items()
    ]
    large = Cell(LARGE | {"trees": TREES_A_CHUNK}, TREES[LARGE["horizon"]] // TREES_A_CHUNK, shared=True)
    return found if quick else [*found, large]


class Pair:
    """The old and the current policy, and the gradients that the update may be the estimate of."""

    def __init__(self, problem: gt.Problem, theta: Array) -> None:
        features = problem.policy.jacobian()[0]
        paths = problem.policy.paths
        self.old, self.now = (Tokens(paths, features @ vector, features) for vector in (problem.theta, theta))
        self.rewards = problem.bandit.mean_reward[0]

    def gradient(self, tokens: Tokens) -> Array:
        """Return grad J at a policy, (d,)."""
        return (tokens.response_probabilities * self.rewards) @ tokens.response_scores

    def surrogate_gradient(self) -> Array:
        """Return the gradient, at the current policy, of J with old prefixes, the current token, and old continuations, (d,).

        A sum over edges: reach of the prefix, times the current token's probability and score, times the old value beyond.
        """
        p = self.old.response_probabilities
        incidence = self.old.paths.incidence
        through = p @ incidence
        beyond = (p * self.rewards) @ incidence / through
        reach = through / self.old.probabilities
        return (reach * self.now.probabilities * beyond) @ self.now.scores

    def kept_gradient(self) -> Array:
        """Return E_k[1_D grad log P_k (r - mu_0)], (d,)."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        kept = q / p <= 1.0 + HIGH
        return (q * kept * (self.rewards - p @ self.rewards)) @ self.now.response_scores

    def clipped(self) -> float:
        """Return the expected share of tokens that the clip by sign drops; of rewards 0 and 1 it is by them."""
        ratios, r = self.old.of_responses(self.now.probabilities / self.old.probabilities), self.rewards[:, None]
        dropped = self.old.paths.taken * (r * (ratios > 1.0 + HIGH) + (1.0 - r) * (ratios < 1.0 - LOW))
        p = self.old.response_probabilities
        return float(p @ dropped.sum(axis=1) / (p @ self.old.paths.lengths))

    def divergence(self) -> float:
        """Return KL(P_0 || P_k) of the responses over the horizon: nats a token."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        return float(p @ np.log(p / q)) / self.old.paths.horizon


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return distances, cosines and variances of the exact updates on some trees, for all directions and drifts."""
    first = chunk * settings["trees"]
    trees = range(first, first + settings["trees"])
    return [row for tree in trees for row in _on_tree(settings, np.random.default_rng([*seed.generate_state(4), tree]), tree)]


def _on_tree(settings: Settings, rng: np.random.Generator, tree: int) -> Iterator[dict[str, Any]]:
    dimension, is_large = settings.get("dimension", DIMENSION), "dimension" in settings
    problem = random_problem(rng, VOCABULARY_SIZE, settings["horizon"], None, n_prompts=1, dimension=dimension)
    old = problem.at(problem.theta)
    names = ("token", "token, clipped") if is_large else tuple(_estimators())
    away = rng.normal(size=problem.policy.dimension)
    for direction, vector in zip(DIRECTIONS, (away, old.moments.gradient), strict=True):
        if is_large and direction != "learning":
            continue
        for drift in DRIFTS if direction == "learning" and not is_large else JUDGED:
            now = problem.at(old.theta + drift * vector / np.linalg.norm(vector))
            for row in _measure(problem, now, old, names):
                yield {"direction": direction, "drift": drift, "tree": tree, **row}


def _measure(problem: gt.Problem, now: gt.Point, old: gt.Point, names: Sequence[str]) -> list[dict[str, Any]]:
    pair, horizon = Pair(problem, now.theta), problem.policy.paths.horizon
    gradient, shrunk = pair.gradient(pair.now), 1.0 - 1.0 / GROUP_SIZE
    scale = float(np.linalg.norm(gradient))
    targets = {"to current": gradient, "to old": pair.gradient(pair.old), "to surrogate": pair.surrogate_gradient()}
    of_tic = {"to shrunk": shrunk * gradient, "to kept": shrunk * pair.kept_gradient()}
    rows = [{"estimator": "none", "quantity": "nats a token", "estimate": pair.divergence()}]
    rows.append({"estimator": "none", "quantity": "clipped", "estimate": pair.clipped()})

    def note(name: str, mean: Array, **measured: float) -> None:
        wanted = targets | of_tic if name.startswith("tic") else targets
        measured |= {target: float(np.linalg.norm(mean - vector)) / scale for target, vector in wanted.items()}
        measured["cosine"] = cosine(mean, gradient)
        rows.extend({"estimator": name, "quantity": quantity, "estimate": value} for quantity, value in measured.items())

    for name in names:
        sizes = {"batch_size": 1, "group_size": GROUP_SIZE}
        law = gt.exact.law_between(now, old, _estimators()[name], **sizes)
        factor = float(horizon) if name.startswith("tic") else 1.0
        note(name, factor * law.mean, variance=factor**2 * law.trace / scale**2)
        if name == "none":
            note("turned", turned(law.mean, gradient))
    return rows


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each tree, direction, drift, estimator and quantity; lengths are relative to that of the current gradient."""
    common = {"horizon": settings["horizon"], "dimension": settings.get("dimension", DIMENSION)}
    return [
        {**common, **{key: value for key, value in row.items() if key != "estimate"}}
        | {"prediction": 0.0 if row["quantity"].startswith("to ") else float("nan"), "estimate": row["estimate"], **EXACT}
        for result in results
        for row in result
    ]


IDENTITIES = (
    ("T6/corrected", "token", "to surrogate", "none"),
    ("T7/printed", "tic", "to current", "none"),
    ("T7/leave-one-out", "trajectory", "to current", "none"),
    ("T7/own mean", "tic, unclipped", "to shrunk", "tic"),
    ("T7/corrected", "tic", "to kept", "tic, unclipped"),
)
"""Statement, estimator, the distance that is zero, and the estimator of the control."""


def claims(table: pd.DataFrame) -> list[Claim]:
    """What holds on every tree, at every direction and drift, by horizon; what holds on most trees, by setting."""
    large = table["dimension"] != DIMENSION
    found, table, of_large = [], table[~large], table[large]
    for horizon, part in table.groupby("horizon"):
        worst = part.groupby(["estimator", "quantity"])["estimate"].agg(largest)
        for statement, estimator, quantity, control in IDENTITIES:
            other = quantity if (control, quantity) in worst.index else "to current"
            both = exact(worst[estimator, quantity], 0.0), exact(worst[control, other], 0.0)
            found.append(claim(statement, f"T = {horizon}", *both))
        trees = _by_tree(part)
        leads = trees["to old"] - trees["to current"]
        nearest = (exact(largest(leads[name]), 0.0) for name in ("token", "trajectory"))
        found.append(claim("T6/printed", f"T = {horizon}", *nearest))
    settings = table[table["drift"].isin(JUDGED)]
    for (horizon, direction, drift), part in settings.groupby(["horizon", "direction", "drift"], sort=False):
        setting, trees = f"T = {horizon}, {direction}, drift {drift:g}", _by_tree(part)
        along, nearer = trees["cosine"], trees["to old"] < trees["to current"]
        facts = {"nats a token": trees["nats a token", "none"].mean(), "share of tokens clipped": trees["clipped", "none"].mean()}
        facts |= {f"mean cosine, {name}": along[name].mean() for name in ("token", "none", "tic")}
        judged = [
            (f"T6/{which}", nearer[name], nearer["trajectory"]) for which, name in (("most", "token"), ("no ratio", "none"))
        ]
        judged.append(("T6/clipped", along["token, clipped"] > 0.0, along["token"] < 0.0))
        if horizon > 1:  # of one token, the update without any ratio is along the gradient
            judged.append(("T7/direction", along["tic"] > along["none"], along["turned"] > along["none"]))
            for statement, best in (("T8/token", along["token"]), ("T8/gradient", 1.0)):
                judged.append((statement, *(best - along[name] <= NOTICEABLE for name in ("none", "turned"))))
        found += [claim(statement, setting, most(holds), most(control), facts=facts) for statement, holds, control in judged]
    return found + list(_clipped_where_parameters_are_many(of_large))


def _clipped_where_parameters_are_many(table: pd.DataFrame) -> Iterator[Claim]:
    """Yield what the clip by sign does on large trees."""
    for (horizon, dimension, direction, drift), part in table.groupby(["horizon", "dimension", "direction", "drift"], sort=False):
        trees = _by_tree(part)
        along = trees["cosine"]
        holds, control = along["token, clipped"] > 0.0, along["token"] < 0.0
        facts = {"nats a token": trees["nats a token", "none"].mean(), "share of tokens clipped": trees["clipped", "none"].mean()}
        setting = f"T = {horizon}, {dimension} parameters, {direction}, drift {drift:g}"
        yield claim("T6/clipped", setting, most(holds), most(control), facts=facts)


def _by_tree(part: pd.DataFrame) -> pd.DataFrame:
    """Return estimates with a row for each tree, direction and drift, and a column for each quantity and estimator."""
    wide = part.pivot(index=["tree", "direction", "drift"], columns=["quantity", "estimator"], values="estimate")
    if wide["cosine"].isna().any(axis=None):
        raise ValueError("every cosine must be a number")
    return wide


STUDY = unconverted(
    "drift",
    "T6, T7, T8: what updates off policy estimate, against the drift, exact",
    cells,
    compute,
    rows,
    claims,
    (
        *(statement for statement, *_ in IDENTITIES),
        *("T6/printed", "T6/most", "T6/no ratio", "T6/clipped", "T7/direction", "T8/token", "T8/gradient"),
    ),
)
