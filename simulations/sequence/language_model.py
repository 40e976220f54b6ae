"""T3, T6 to T8 on SmolLM2: what updates estimate after 1, 4 and 16 updates on one rollout, exact.

The policies are its head before and after the updates; answers have one token, or several. In the controls the trajectory's ratio
is left out or squared, updates are turned, or responses are the old policy's instead of the current one's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.ratio import Ratio, find_clip
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.sequence.checkpoints import SEVERAL, checkpoints, divergence
from simulations.sequence.parts import NOTICEABLE, composed, cosine, turned
from simulations.statements import stated

PROPERTY, NEARER_TO_OLD, UNBIASED = stated("T3/language model", "T6/language model", "T7/language model")
TIC_UNBIASED, LESS_ERROR, WITHOUT_RATIO = stated("T7/language model, TIC", "T7/language model, error", "T8/language model")

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
    compared = {
        "none": leave_one_out("none"),
        "trajectory": leave_one_out("trajectory"),
        "trajectory, clipped": leave_one_out("trajectory", "upper only"),
        "token, clipped": UPDATE,
        "tic": find("tic_grpo"),
    }
    if horizon > 1:
        compared |= {"token": leave_one_out("token"), "geometric": leave_one_out("geometric")}
        compared["doubled"] = leave_one_out(Ratio("doubled", doubled_ratio))
    return compared


def cells(quick: bool) -> list[Cell]:
    """One cell for each way of asking and for the longer answers; exact, so quick only looks at fewer."""
    problems = ("lm-few-shot", SEVERAL) if quick else (*ONE_TOKEN, SEVERAL)
    return [Cell({"problem": name, "updates": list(QUICK_UPDATES if quick else UPDATES)}) for name in problems]


def policies(problem: gt.Problem, old: gt.Point, now: gt.Point) -> dict[str, float]:
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
    return measured


def _cross(p: Array, products: Array, apart: Array) -> float:
    """Return E||sum_t w_t||^2 / E sum_t ||w_t||^2 less 1, for responses drawn with probabilities (M, K)."""
    together = products.sum(axis=(-2, -1))
    return float((p * together).sum() / (p * apart).sum() - 1.0)


def _quantile(values: Array, p: Array, share: float) -> float:
    order = np.argsort(values, axis=None)
    mass = np.cumsum(p.ravel()[order])
    return float(values.ravel()[order][min(np.searchsorted(mass, share * mass[-1]), order.size - 1)])


def updates(problem: gt.Problem, old: gt.Point, now: gt.Point) -> dict[tuple[str, str], float]:
    """Return distances of the mean updates from gradients, their cosines with the current one, and their errors.

    Lengths are relative to that of the current gradient.
    """
    horizon, gradient = problem.policy.paths.horizon, now.moments.gradient
    scale = float(np.linalg.norm(gradient))
    measured: dict[tuple[str, str], float] = {}

    def note(name: str, mean: Array) -> None:
        measured[name, "to current"] = float(np.linalg.norm(mean - gradient)) / scale
        measured[name, "to old"] = float(np.linalg.norm(mean - old.moments.gradient)) / scale
        measured[name, "cosine"] = cosine(mean, gradient)

    for name, estimator in estimators(horizon).items():
        law = gt.exact.law_between(now, old, estimator, batch_size=BATCH_SIZE, group_size=GROUP_SIZE)
        factor = float(horizon) if name == "tic" else 1.0
        mean, variance = factor * law.mean, factor**2 * law.trace / scale**2
        measured[name, "variance"] = variance
        measured[name, "error"] = variance + float(np.linalg.norm(mean - gradient) ** 2) / scale**2
        note(name, mean)
        if name == "none":
            note("turned", turned(mean, gradient))
    return measured


FACTS = ("nats", "effective sample share", "tokens clipped")


def compare(settings: Settings) -> Iterator[Comparison | Mapping[str, Any]]:
    """Yield what is measured at every checkpoint, and at some of them what is stated about it."""
    problem = gt.gallery.problem(settings["problem"])
    old = problem.at(problem.theta)
    for count, theta in checkpoints(problem, UPDATE, settings["updates"], GROUP_SIZE).items():
        now = problem.at(theta)
        measured = {("policy", name): value for name, value in policies(problem, old, now).items()} | updates(problem, old, now)
        for (name, quantity), value in measured.items():
            common = {"problem": settings["problem"], "updates": count}
            yield common | {"estimator": name, "quantity": quantity, "estimate": value}
        if count in JUDGED:
            yield from judged(settings["problem"], count, measured)


def judged(problem: str, count: int, value: Mapping[tuple[str, str], float]) -> Iterator[Comparison]:
    """Yield what is stated after so many updates."""
    setting, facts = f"{problem}, {count} updates", {fact: value["policy", fact] for fact in FACTS}
    for statement, name, control in ((UNBIASED, "trajectory", "none"), (TIC_UNBIASED, "tic", "none")):
        gap, broken = (value[one, "to current"] for one in (name, control))
        yield statement.compare(setting, gap, 0.0, broken=broken, facts=facts)
    cost, broken = (1.0 - value[name, "cosine"] for name in ("none", "turned"))
    yield WITHOUT_RATIO.compare(setting, cost, NOTICEABLE, broken=broken, facts=facts)
    if problem != SEVERAL:
        return
    cross, broken = (value["policy", name] for name in ("cross terms", "cross terms, old responses"))
    yield PROPERTY.compare(setting, cross, 0.0, broken=broken, facts=facts)
    lead, broken = (value[name, "to old"] - value[name, "to current"] for name in ("token", "trajectory"))
    yield NEARER_TO_OLD.compare(setting, lead, 0.0, broken=broken, facts=facts)
    excess, broken = (value[name, "error"] - value["token", "error"] for name in ("trajectory", "doubled"))
    yield LESS_ERROR.compare(setting, excess, 0.0, broken=broken, facts=facts)
