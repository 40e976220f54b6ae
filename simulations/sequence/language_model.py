"""T3, T6 to T8 on SmolLM2: its head before and after 1, 4 and 16 updates on one rollout, answers of one token and of several."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.clip import find_clip
from grpo_theory.estimation.ratio import Ratio
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.checkpoints import SEVERAL, checkpoints, divergence
from simulations.sequence.parts import NOTICEABLE, composed, cosine, turned

ONE_TOKEN = ("lm-zero-shot", "lm-few-shot", "lm-instruct")
UPDATES, QUICK_UPDATES = (1, 2, 3, 4, 6, 8, 11, 16), (1, 4)
JUDGED = (1, 4, 16)
"""Claims are about these numbers of updates; the others are for curves."""
GROUP_SIZE, BATCH_SIZE = 8, 32
WIDTH = 0.2
"""Of every clip, as practised."""


def doubled_ratio(log_ratios, length, ratios):
    """Something broken: the square of the trajectory ratio."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
        whole = np.exp(2.0 * total)
        for t in range(length):
            ratios[t, i] = whole


def leave_one_out(ratio: str | Ratio, clip: str = "none") -> Estimator:
    """Return leave-one-out advantages with a ratio and a clip."""
    return composed("rloo", ratio, find_clip(clip).with_widths(WIDTH, WIDTH))


UPDATE = leave_one_out("token", "by sign")
"""What the policy is updated with: token ratios clipped by the advantage's sign."""


def estimators(horizon: int) -> dict[str, Estimator]:
    """Return the estimators that are compared; of one token the token's ratio is the trajectory's."""
    found = {
        "none": leave_one_out("none"),
        "trajectory": leave_one_out("trajectory"),
        "trajectory, clipped": leave_one_out("trajectory", "upper only"),
        "token, clipped": UPDATE,
        "tic": find("tic_grpo"),
    }
    if horizon > 1:
        found |= {"token": leave_one_out("token"), "geometric": leave_one_out("geometric")}
        found["doubled"] = leave_one_out(Ratio("doubled", doubled_ratio))
    return found


def cells(quick: bool) -> list[Cell]:
    """One cell for each way of asking and for the longer answers; exact, so quick only looks at fewer."""
    problems = ("lm-few-shot", SEVERAL) if quick else (*ONE_TOKEN, SEVERAL)
    common = {"updates": list(QUICK_UPDATES if quick else UPDATES), "group_size": GROUP_SIZE, "batch_size": BATCH_SIZE}
    return [Cell({"problem": name, **common}) for name in problems]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return what is measured at every checkpoint."""
    problem = gt.gallery.problem(settings["problem"])
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    old = problem.at(problem.theta)
    found = []
    for updates, theta in checkpoints(problem, UPDATE, settings["updates"], settings["group_size"]).items():
        now = problem.at(theta)
        measured = [{"estimator": "policy", **row} for row in _policies(problem, old, now)]
        measured += _updates(problem, old, now, sizes)
        found += [{"updates": updates, **row} for row in measured]
    return found


def _policies(problem: gt.Problem, old: gt.Point, now: gt.Point) -> list[dict[str, Any]]:
    """Return how far the policies are apart: ratios of tokens and of responses, under the old policy."""
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights[:, None]
    p = weights * old.probabilities
    log_ratios = now.token_log_probabilities - old.token_log_probabilities
    rho = np.exp(paths.along(log_ratios))
    ratios = np.exp(paths.gather(log_ratios))
    per_token = (p / (p @ paths.lengths).sum())[:, :, None] * paths.taken
    second = float((p * rho**2).sum())
    success, values = problem.bandit.mean_reward, old.moments.value[:, None]
    right = (success > values)[:, :, None]
    outside = np.abs(ratios - 1.0) > WIDTH
    dropped = np.where(right, ratios > 1.0 + WIDTH, ratios < 1.0 - WIDTH)
    products = now.token_products
    apart = np.einsum("mktt->mk", products)
    measured = {
        "nats": divergence(problem, old.theta, now.theta),
        "value": float((weights * now.moments.value[:, None]).sum()),
        "second moment": second,
        "effective sample share": 1.0 / second,
        "tokens outside": float((per_token * outside).sum()),
        "tokens clipped": float((per_token * dropped).sum()),
        "responses above": float((p * (rho > 1.0 + WIDTH)).sum()),
        "cross terms": _cross(weights * now.probabilities, products, apart),
        "cross terms, old responses": _cross(p, products, apart),
    }
    for share in (0.01, 0.99):
        measured[f"ratio, {100 * share:g}%"] = _quantile(rho, p, share)
    return [{"quantity": quantity, "estimate": value} for quantity, value in measured.items()]


def _cross(p: Array, products: Array, apart: Array) -> float:
    """Return E||sum_t w_t||^2 / E sum_t ||w_t||^2 less 1, for responses drawn with probabilities (M, K)."""
    together = products.sum(axis=(-2, -1))
    return float((p * together).sum() / (p * apart).sum() - 1.0)


def _quantile(values: Array, p: Array, share: float) -> float:
    order = np.argsort(values, axis=None)
    mass = np.cumsum(p.ravel()[order])
    return float(values.ravel()[order][min(np.searchsorted(mass, share * mass[-1]), order.size - 1)])


def _updates(problem: gt.Problem, old: gt.Point, now: gt.Point, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """Return distances of the mean updates from gradients, their cosines with the current one, and their errors."""
    horizon, gradient = problem.policy.paths.horizon, now.moments.gradient
    scale = float(np.linalg.norm(gradient))
    found: list[dict[str, Any]] = []

    def note(name: str, mean: Array, **measured: float) -> None:
        measured["to current"] = float(np.linalg.norm(mean - gradient)) / scale
        measured["to old"] = float(np.linalg.norm(mean - old.moments.gradient)) / scale
        measured["cosine"] = cosine(mean, gradient)
        found.extend({"estimator": name, "quantity": quantity, "estimate": value} for quantity, value in measured.items())

    for name, estimator in estimators(horizon).items():
        law = gt.exact.law_between(now, old, estimator, **sizes)
        factor = float(horizon) if name == "tic" else 1.0
        mean, variance = factor * law.mean, factor**2 * law.trace / scale**2
        error = variance + float(np.linalg.norm(mean - gradient) ** 2) / scale**2
        note(name, mean, variance=variance, error=error)
        if name == "none":
            note("turned", turned(mean, gradient))
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint, estimator and quantity; lengths are relative to that of the current gradient."""
    zero = ("to current", "cross terms", "cross terms, old responses")
    return [
        {"problem": settings["problem"], **{key: row[key] for key in ("updates", "estimator", "quantity")}}
        | {"prediction": 0.0 if row["quantity"] in zero else float("nan"), "estimate": row["estimate"], **EXACT}
        for row in results[0]
    ]


FACTS = ("nats", "effective sample share", "tokens clipped")


def claims(table: pd.DataFrame) -> list[Claim]:
    """One claim for each statement, way of asking and number of updates."""
    found, judged = [], table[table["updates"].isin(JUDGED)]
    for (problem, updates), part in judged.groupby(["problem", "updates"], sort=False):
        value = part.set_index(["estimator", "quantity"])["estimate"]
        setting = f"{problem}, {updates} updates"
        facts = {fact: value["policy", fact] for fact in FACTS}
        identities = (("T7/language model", "trajectory", "none"), ("T7/language model, TIC", "tic", "none"))
        for statement, name, control in identities:
            both = (exact(value[one, "to current"], 0.0) for one in (name, control))
            found.append(claim(statement, setting, *both, facts=facts))
        costs = (exact(1.0 - value[name, "cosine"], NOTICEABLE) for name in ("none", "turned"))
        found.append(claim("T8/language model", setting, *costs, facts=facts))
        if problem != SEVERAL:
            continue
        cross = (exact(value["policy", name], 0.0) for name in ("cross terms", "cross terms, old responses"))
        found.append(claim("T3/language model", setting, *cross, facts=facts))
        gaps = (exact(value[name, "to old"] - value[name, "to current"], 0.0) for name in ("token", "trajectory"))
        found.append(claim("T6/language model", setting, *gaps, facts=facts))
        errors = (exact(value[name, "error"] - value["token", "error"], 0.0) for name in ("trajectory", "doubled"))
        found.append(claim("T7/language model, error", setting, *errors, facts=facts))
    return found


STUDY = unconverted(
    "language_model",
    "T3, T6 to T8 on SmolLM2: what updates estimate after 1, 4 and 16 updates on one rollout, exact",
    cells,
    compute,
    rows,
    claims,
    (
        *("T3/language model", "T6/language model", "T7/language model", "T7/language model, TIC"),
        *("T7/language model, error", "T8/language model"),
    ),
)
