"""P3, P4: responses shared out among prompts, in one step, exact.

The printed variances against the true ones; what each rule's sizes gain over equal ones; and groups that stop by their own
rewards.  Broken: variances over n, sizes upside down, sizes as 1/p^2, and a stopped group that is taken for one of fixed size.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
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
STOPPED = Statement(
    "allocation/stopped",
    derived(33),
    "a group that stops at its first mixed size moves by h(p) g, h = sum_n (p^(n-1) q + q^(n-1) p)/(n p q)",
    "identity",
    formula=r"A group that grows until it is mixed, to at most $U$, has the mean update $h(p)\,g$ with "
    r"$h=\sum_{n=2}^{U}(p^{n-1}q+q^{n-1}p)/(n\,pq)$.",
    whose=OURS,
)
UNBIASED = Statement(
    "allocation/stopped, unbiased",
    derived(33),
    "groups that stop at their first mixed size, or by halving, leave every prompt's gradient within a tenth of its length",
    "upper bound",
    whose=OURS,
)
PAYS = Statement(
    "allocation/stopped, pays",
    derived(33),
    "groups that stop at their first mixed size have at least the efficiency of groups of as many responses on average",
    "upper bound",
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
STOPS = ("mixed", "world tabular", "lm-few-shot")
HALVED = np.array([0.02, 0.1, 0.3, 0.5])
"""Success rates of the four prompts of successive halving."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; a quick run has the cheapest."""
    names = [f"gallery/{name}" for name in GALLERY[: 3 if quick else None]]
    names += [f"world/{name}" for name in LARGE[: 1 if quick else None]]
    return [Cell({"problem": "independent"}), *(Cell({"problem": name}) for name in names), Cell({"problem": "halving"})]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the comparisons of one problem."""
    name = settings["problem"]
    if name == "independent":
        yield from _independent()
    elif name == "halving":
        yield from _halving()
    else:
        kind, _, own = name.partition("/")
        yield from _shared_out(own if kind == "gallery" else f"world {own}", _problem(kind, own))


def _problem(kind: str, name: str) -> gt.Problem:
    return gt.gallery.problem(name) if kind == "gallery" else WORLDS[name].problem()


def _printed(point: gt.Point, sizes: Array) -> Array:
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
    for estimator, factor in (("rloo", np.ones(len(sizes))), ("dr_grpo", (1.0 - 1.0 / sizes) ** 2)):
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
    true, printed = law.traces[MEAN - law.low, at], _printed(law.point, np.array([MEAN]))[0, at]
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
    if equal - least >= WORTH * equal:
        missed, control = ((error - least) / (equal - least) for error in (errors["vip"], upside_down))
        yield VIP_SHARE.compare(name, missed, HALF, broken=control, facts={"gain of the best": 1.0 - least / equal})
    if name in STOPS and problem.kl is None:
        yield from _stopped(name, problem, law)


def _stopped(name: str, problem: gt.Problem, law: gt.AllocationLaw) -> Iterator[Comparison]:
    """Groups that stop at the first mixed size, of at most 16 responses."""
    most = MEAN * 2
    groups, fixed = (gt.exact.first_mixed_groups(problem, problem.theta, low=low, high=most) for low in (2, most))
    p = law.known[:, 0]
    p = p[(p > 0.0) & (p < 1.0)]
    slopes, plain = (one.slopes[(law.known[:, 0] > 0.0) & (law.known[:, 0] < 1.0)] for one in (groups, fixed))
    n = np.arange(2, most + 1)[:, None]
    predicted = ((p ** (n - 1) * (1.0 - p) + (1.0 - p) ** (n - 1) * p) / n).sum(axis=0) / (p * (1.0 - p))
    gaps = [float(np.abs(one / predicted - 1.0).max()) for one in (slopes, plain)]
    yield STOPPED.compare(name, gaps[0], 0.0, broken=gaps[1])
    facts = {"least slope": slopes.min(), "greatest slope": slopes.max(), "cosine": groups.cosine}
    # Groups of one size that are drawn anew until they are mixed weigh 1/P(mixed), which is known to be another direction.
    redrawn = float((1.0 / (1.0 - p**most - (1.0 - p) ** most)).max() - 1.0)
    yield UNBIASED.compare(f"{name}, first mixed", float(np.abs(slopes - 1.0).max()), NEAR, broken=redrawn, facts=facts)
    weights, mean = problem.bandit.prompt_weights, float(groups.responses.mean())
    ratio, half = (_efficiency(law, weights, size) / groups.efficiency for size in (mean, 2.0 * mean))
    facts = {"responses on average": mean, "efficiency, stopped": groups.efficiency}
    yield PAYS.compare(f"{name}, first mixed", ratio, 1.0, broken=half, facts=facts)


def _efficiency(law: gt.AllocationLaw, weights: Array, size: float) -> float:
    """Return the efficiency of leave-one-out groups of one size, which need not be whole: the law is a function of any size."""
    trace = float(weights**2 @ (law.known[:, 2] / size + law.known[:, 3] / (size * (size - 1.0))))
    power = law.point.moments.gradient_power
    return power / (power + trace)


def _halving() -> Iterator[Comparison]:
    """Four prompts with 4 responses each; two of them go on to 8, and one to 16."""
    logits = np.stack([np.log(HALVED / (1.0 - HALVED)), np.zeros(4)], axis=1)
    problem = gt.Problem(gt.Bandit(np.tile([1.0, 0.0], (4, 1))), gt.TabularSoftmax(4, 2), theta=logits.ravel())
    groups = gt.exact.halved_groups(problem, problem.theta, low=4, rounds=2)
    gap = float(np.abs(groups.slopes - 1.0).max())
    facts = {f"slope at p = {p:g}": slope for p, slope in zip(HALVED, groups.slopes, strict=True)}
    broken = float(np.abs(groups.responses / groups.responses.mean() - 1.0).max())
    yield UNBIASED.compare("four prompts, halving", gap, NEAR, broken=broken, facts=facts | {"cosine": groups.cosine})
