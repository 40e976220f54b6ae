"""P3, P4: responses shared out among prompts, in one step, exact.

The printed variances are compared with the true ones, and each rule's sizes with equal ones. The study also shows what is left of
the gain if success rates are guessed from a few earlier responses. In the controls variances are divided by n, sizes are upside
down, or sizes are as 1/p^2.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.harness.study import Cell, Settings
from simulations.runs.allocation_rules import SGPO_NOW, STEEPLY, UPSIDE_DOWN, VIP_AT_START
from simulations.runs.worlds import WORLDS
from simulations.sources import OURS, derived

VIP, SGPO, DYNAMO = "arXiv 2602.01601", "sGPO", "arXiv 2602.19208"
PRINTED = Statement(
    "P3/printed variance",
    VIP,
    "leave-one-out and group mean: a prompt's variance is 4 s^2 p(1-p)/(n-1) and that times (1 - 1/n)^2, rewards +-1",
    "identity",
    "the score is independent of the reward",
    formula=r"With rewards $\pm1$ the variance of a prompt's estimate is $4s^2p(1-p)/(n-1)$ (leave-one-out) and "
    r"$4s^2p(1-p)(n-1)/n^2$ (Dr. GRPO).",
)
GRADIENT = Statement(
    "P3/no gradient",
    derived(33),
    "where the score is independent of the reward the gradient is 0",
    "identity",
    formula=r"Where the score is independent of the reward, the gradient is $0$.",
    whose=OURS,
)
ELSEWHERE = Statement(
    "P3/printed variance, elsewhere",
    f"question beside {VIP}",
    "with s^2 = E||W||^2/d of each prompt the printed variance is within a tenth of the true one, n = 8",
    "upper bound",
    formula=r"With each prompt's own $s^2$ the printed variance is within a tenth of the true one ($n=8$).",
    whose=OURS,
)
VIP_GAINS = Statement(
    "P3/one step",
    f"question beside {VIP}",
    "8 responses a prompt on average: the sizes that make the printed variance least have at most the error of equal sizes",
    "upper bound",
    formula=r"With $8$ responses a prompt on average, the sizes that make the printed variance least have at most the error of "
    r"equal sizes.",
    whose=OURS,
)
VIP_SHARE = Statement(
    "P3/share of the gain",
    f"question beside {VIP}",
    "these sizes miss at most half of what the best sizes gain",
    "upper bound",
    "the best sizes gain at least 2% of the error",
    whose=OURS,
)
SEEN_RAW = Statement(
    "P3/seen rates, raw",
    f"question beside {VIP}",
    "with the rates k/8 of 8 earlier responses these sizes have at most the error of equal sizes, in the mean of 32 draws",
    "upper bound",
    formula=r"With the rates $k/8$ of $8$ earlier responses these sizes have at most the error of equal sizes, in the mean of "
    r"$32$ draws.",
    whose=OURS,
)
SEEN = Statement(
    "P3/seen rates",
    f"question beside {VIP}",
    "with the rates (k + 1)/10 of 8 earlier responses, these sizes have at most equal sizes' error, in the mean of 32 draws",
    "upper bound",
    formula=r"With the rates $(k+1)/10$ of $8$ earlier responses these sizes have at most the error of equal sizes, in the mean "
    r"of $32$ draws.",
    whose=OURS,
)
DYNAMO_GAINS = Statement(
    "P4/DynaMO, one step",
    f"question beside {DYNAMO}",
    "sizes as the standard deviation of the reward have at most the error of equal sizes",
    "upper bound",
    whose=OURS,
)
SGPO_GAINS = Statement(
    "P4/sGPO, one step",
    f"question beside {SGPO}",
    "sizes as 1/p have at most the error of equal sizes",
    "upper bound",
    formula=r"Sizes as $1/p$ have at most the error of equal sizes.",
    whose=OURS,
)
GALLERY = ("mixed", "two-speeds", "lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
LARGE = ("shared", "tabular", "hard")
"""Of the worlds of whole runs, at their start."""
MEAN, HIGH = 8, 32
RULES = ("uniform", "neyman", "vip", "dynamo", "sgpo")
NEAR, HALF = 0.1, 0.5
"""A tenth of the error is a tenth of the responses; who gets less than half of a gain has made the wrong choice."""
WORTH = 0.02
"""A gain of less than 2% of the error is one that nobody would build anything for."""
SEEN_BEFORE, DRAWS, SEED = 8, 32, 36


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; a quick run has the cheapest."""
    names = [f"gallery/{name}" for name in GALLERY[: 3 if quick else None]]
    names += [f"world/{name}" for name in LARGE[: 1 if quick else None]]
    return [Cell({"problem": "independent"}), *(Cell({"problem": name}) for name in names)]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the comparisons of one problem."""
    name = settings["problem"]
    if name == "independent":
        yield from _independent()
    else:
        kind, _, own = name.partition("/")
        yield from _shared_out(own if kind == "gallery" else f"world {own}", _problem(kind, own))


def _problem(kind: str, name: str) -> gt.Problem:
    return gt.gallery.problem(name) if kind == "gallery" else WORLDS[name].problem()


def _printed(point: gt.Point, sizes: Array | Integers) -> Array:
    """Return the printed trace of the leave-one-out estimate with each prompt's own s^2, shape (sizes, M), rewards 0 and 1."""
    exact = point.moments
    return np.asarray(exact.reward_variance * exact.score_power / (sizes[:, None] - 1.0))


def _independent() -> Iterator[Comparison]:
    """Prompts at which every answer is right equally often."""
    rates = np.array([0.05, 0.3, 0.5, 0.9])
    policy = gt.TabularSoftmax(len(rates), 5)
    theta = np.random.default_rng(7).normal(size=policy.dimension)
    problem = gt.Problem(gt.Bandit(np.tile(rates[:, None], 5)), policy, theta=theta)
    point, sizes = problem.at(theta), np.arange(2, HIGH + 1)
    for estimator, factor in (("rloo", np.ones(sizes.size)), ("dr_grpo", (1.0 - 1.0 / sizes) ** 2)):
        law = gt.allocation_law(problem, theta, estimator, high=HIGH)
        printed = factor[:, None] * _printed(point, sizes)
        wrong = printed * ((sizes - 1.0) / sizes)[:, None]
        errors = [float(np.abs(one / law.traces - 1.0).max()) for one in (printed, wrong)]
        yield PRINTED.compare(f"rewards that are luck ({estimator})", errors[0], 0.0, broken=errors[1])
    other = gt.gallery.problem("tabular")
    lengths = [float(np.sqrt(one.moments.gradient_power)) for one in (point, other.at(other.theta))]
    yield GRADIENT.compare("rewards that are luck", lengths[0], 0.0, broken=lengths[1])


def _shared_out(name: str, problem: gt.Problem) -> Iterator[Comparison | dict[str, Any]]:
    """What each rule's sizes gain over equal ones."""
    law = gt.allocation_law(problem, problem.theta, high=HIGH)
    budget = MEAN * problem.policy.n_prompts
    errors = {rule: law.mse(law.sizes(rule, budget)) for rule in RULES}
    equal, least = errors["uniform"], law.mse(law.best(budget))
    upside_down, steep = (law.mse(law.sizes(rule, budget)) for rule in (UPSIDE_DOWN, STEEPLY))
    beside = {rule.name: law.mse(law.sizes(rule, budget)) for rule in (VIP_AT_START, SGPO_NOW)}
    for rule, error in (errors | beside | {"best": least}).items():
        yield {"problem": name, "rule": rule, "quantity": "error", "estimate": error / least}
    at = law.known[:, 1] > 0.0
    true, printed = law.traces[MEAN - law.low, at], _printed(law.point, np.array([float(MEAN)]))[0, at]
    ratios = printed / true
    facts = {"least ratio": float(ratios.min()), "greatest ratio": float(ratios.max()), "median ratio": float(np.median(ratios))}
    # As the printed law with the largest variance that rewards have, at all prompts: it knows nothing of p.
    broken = float(np.abs(printed / (4.0 * law.known[at, 1]) / true - 1.0).max())
    yield ELSEWHERE.compare(name, float(np.abs(ratios - 1.0).max()), NEAR, broken=broken, facts=facts)
    shown = {f"error, {rule}": error / least for rule, error in errors.items()}
    if np.ptp(law.known[:, 1]) > 1e-9:  # else these rules have nothing to choose by
        yield VIP_GAINS.compare(name, errors["vip"] / equal, 1.0, broken=upside_down / equal, facts=shown)
        yield DYNAMO_GAINS.compare(name, errors["dynamo"] / equal, 1.0, broken=upside_down / equal)
        yield SGPO_GAINS.compare(name, errors["sgpo"] / equal, 1.0, broken=steep / equal)
        yield from _by_seen_rates(name, law, equal, upside_down)
    if equal - least >= WORTH * equal:
        missed, control = ((error - least) / (equal - least) for error in (errors["vip"], upside_down))
        yield VIP_SHARE.compare(name, missed, HALF, broken=control, facts={"gain of the best": 1.0 - least / equal})


def _by_seen_rates(name: str, law: gt.AllocationLaw, equal: float, upside_down: float) -> Iterator[Comparison]:
    """The printed variance with rates that earlier responses gave: sizes do not depend on the responses that they are of."""
    if not np.isin(law.point.bandit.values, (0.0, 1.0)).all():
        return
    rng, rule, n_prompts = np.random.default_rng(SEED), gt.allocation_rules()["vip"], law.point.policy.n_prompts
    rights = rng.binomial(SEEN_BEFORE, np.clip(law.known[:, 0], 0.0, 1.0), size=(DRAWS, n_prompts))
    for statement, more in ((SEEN_RAW, 0.0), (SEEN, 1.0)):
        rates = (rights + more) / (SEEN_BEFORE + 2.0 * more)
        known = (np.stack([own, own * (1.0 - own), *law.known[:, 2:].T], axis=1) for own in rates)
        laws = (replace(law, known=one) for one in known)
        errors = np.array([law.mse(one.sizes(rule, MEAN * n_prompts)) for one in laws]) / equal
        facts = {"standard error": errors.std(ddof=1) / np.sqrt(DRAWS), "largest of the draws": errors.max()}
        yield statement.compare(name, float(errors.mean()), 1.0, broken=upside_down / equal, facts=facts)
