"""T6, T7, T8: what updates off policy estimate, against the drift, exact.

On random trees the expected update is compared with the gradients that it may estimate, as a function of how far the policy has
moved. The controls have another ratio, clip or mean in the estimator, or updates that are turned.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.reading import exact, largest, most
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.seeds import seed_of
from simulations.sequence.parts import NOTICEABLE, generator_of, of_length, random_problem
from simulations.sequence.policy_pair import estimators, measured_updates
from simulations.sources import CORRECTION, OURS, TIC_GRPO, derived

ON_TREES = "random problems on trees: two tokens to choose from, six features shared by all prefixes, rewards 0 and 1"
ONE_STEP = "(200 where it is said); the policy has moved by one step, farther along the gradient than the clip lets it"


def in_most(part: str, text: str, formula: str, where: str = ON_TREES) -> Statement:
    """Return the statement that something holds for most random problems."""
    text = f"{text}; it fails for at most half of the problems"
    return Statement(part, f"question beside {TIC_GRPO}", text, "upper bound", where, formula=f"{formula}.", whose=OURS)


T6 = Statement(
    "T6",
    TIC_GRPO,
    "GRPO's update estimates the gradient at the old policy, not at the current one",
    PARTS,
    formula=r"GRPO's update estimates the gradient at the old policy, $\nabla J(\theta_0)$, and not that at the current "
    r"one, $\nabla J(\theta_k)$.",
)
T6_PRINTED = Statement(
    "T6/printed",
    TIC_GRPO,
    "the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k)",
    "ordering",
    formula=r"The mean update with token ratios is nearer to $\nabla J(\theta_0)$ than to $\nabla J(\theta_k)$.",
)
T6_MOST = in_most(
    "T6/most",
    "the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k)",
    r"For most random problems the mean update with token ratios is nearer to $\nabla J(\theta_0)$ than to $\nabla J(\theta_k)$",
)
T6_CORRECTED = Statement(
    "T6/corrected",
    derived(25),
    "mean update with token ratios, leave-one-out, no clip = gradient at theta_k of J with old prefixes, current "
    "token, old continuations",
    "identity",
    formula=r"The mean update with token ratios (leave-one-out, no clip) is the gradient at $\theta_k$ of another objective. "
    "Its prefixes and continuations are drawn from the old policy, and its token from the current one.",
    whose=CORRECTION,
)
T6_NO_RATIO = in_most(
    "T6/no ratio",
    "the mean update without any ratio is nearer to grad J(theta_0) than to grad J(theta_k)",
    r"The mean update without any ratio is nearer to $\nabla J(\theta_0)$ than to $\nabla J(\theta_k)$, for most random problems",
)
T6_CLIPPED = in_most(
    "T6/clipped",
    "the mean update with token ratios clipped by sign at 0.8 and 1.2 still climbs",
    r"The mean update with token ratios clipped by sign at $0.8$ and $1.2$ still climbs: its cosine with $\nabla J(\theta_k)$ is "
    "above $0$, for most random problems",
    f"{ON_TREES} {ONE_STEP}",
)
T7 = Statement(
    "T7",
    TIC_GRPO,
    "TIC estimates the gradient at the current policy",
    PARTS,
    formula=r"TIC estimates the gradient at the current policy: $$T\cdot E[\text{update}]=\nabla J(\theta_k)$$",
)
T7_PRINTED = Statement(
    "T7/printed",
    TIC_GRPO,
    "T times TIC's mean update (own sample in the mean, clipped at 1.2) = grad J(theta_k)",
    "identity",
    formula=r"With the own sample in the mean and the clip at $1.2$, $T$ times the mean update is $\nabla J(\theta_k)$.",
)
T7_LEAVE_ONE_OUT = Statement(
    "T7/leave-one-out",
    f"question beside {TIC_GRPO}",
    "the mean update with the trajectory ratio, leave-one-out, no clip, = grad J(theta_k)",
    "identity",
    formula=r"With the trajectory ratio, leave-one-out and no clip, the mean update is $\nabla J(\theta_k)$.",
    whose=OURS,
)
T7_OWN_MEAN = Statement(
    "T7/own mean",
    f"question beside {TIC_GRPO}",
    "T times TIC's mean update without its clip = (1 - 1/G) grad J(theta_k)",
    "identity",
    formula=r"Without its clip, $T$ times TIC's mean update is $(1-1/G)\,\nabla J(\theta_k)$.",
    whose=OURS,
)
T7_CORRECTED = Statement(
    "T7/corrected",
    derived(25),
    "T times TIC's mean update = (1 - 1/G) E_k[1_D grad log P_k (r - mu_0)]",
    "identity",
    formula=r"$$T\cdot E[\text{update}]=\left(1-\frac1G\right)E_k\left[1_D\,\nabla\log P_k\,(r-\mu_0)\right]$$",
    whose=CORRECTION,
)
T7_DIRECTION = in_most(
    "T7/direction",
    "TIC's mean update is nearer in direction to grad J(theta_k) than the mean update without any ratio",
    r"TIC's mean update is nearer in direction to $\nabla J(\theta_k)$ than the mean update without any ratio, for most random "
    "problems",
)
T8 = Statement(
    "T8",
    TIC_GRPO,
    "dropping importance sampling altogether costs nothing noticeable",
    PARTS,
    formula="Dropping importance sampling altogether costs nothing noticeable.",
)
T8_TOKEN = in_most(
    "T8/token",
    "against token ratios: the cosine of mean update and grad J(theta_k) falls by at most 0.05",
    r"Against token ratios: the cosine of mean update and $\nabla J(\theta_k)$ falls by at most $0.05$, for most random problems",
)
T8_GRADIENT = in_most(
    "T8/gradient",
    "against an unbiased update: the cosine of mean update and grad J(theta_k) is at least 0.95",
    r"Against an unbiased update: the cosine of mean update and $\nabla J(\theta_k)$ is at least $0.95$, for most random "
    "problems",
)

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
