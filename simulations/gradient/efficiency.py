"""Efficiency of estimators with different means, against the group size, exact.

A learning rate undoes any factor on an estimator, so a squared error about the gradient compares only those with one mean.
Efficiency compares them all, for one step: (g . E ghat)^2/(||g||^2 E||ghat||^2).

In one control GRPO has the group size of its least squared error, which counts a factor as an error. In the other the group's
deviation multiplies the advantages instead of dividing them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.centring import centre
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import Comparison
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.groups import RESPONSES
from simulations.statements import stated

LARGER_GROUPS, BEST_SIZES, AT_32 = stated("efficiency/larger groups", "efficiency/best sizes", "efficiency/at 32")

GROUP_SIZES = (*range(2, 17), 20, 24, 32, 48, 64)
LARGE = 32
"""The group size that arXiv 2603.01162 reports as the best one."""
JUDGED = ("lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
"""A language model's heads.  On the made-up problems, of 4 to 16 prompts, 1,024 responses leave next to no noise to compare."""


def multiplied(batch, advantages):
    """Broken: the group's deviation multiplies the advantages instead of dividing them."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        for g in range(group_size):
            advantages[b, g] *= deviation


ESTIMATORS: dict[str, Estimator] = {name: find(name) for name in ("reinforce", "rloo", "grpo", "max_rl")}
ESTIMATORS["multiplied"] = make_estimator("multiplied", multiplied, minimum_group_size=2)


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, and a quick run looks at one of the heads and half of the group sizes."""
    problems = ("lm-few-shot",) if quick else (*gt.gallery.names("gradient"), "lm-answers")
    return [Cell({"problem": name, "group_sizes": sorted({*GROUP_SIZES[:: 2 if quick else 1], LARGE})}) for name in problems]


def measures(problem: gt.Problem, estimator: str, group_sizes: list[int]) -> dict[str, list[float]]:
    """Return efficiency, cosine, and squared error relative to ||g||^2 at each group size, with N/G prompts, whole or not."""
    point = problem.at(problem.theta)
    measured: dict[str, list[float]] = {"efficiency": [], "cosine": [], "error": []}
    for size in group_sizes:
        law = gt.exact.law_between(point, point, ESTIMATORS[estimator], batch_size=1, group_size=size)
        noise, g, mean = law.trace * size / RESPONSES, law.true_gradient, law.mean
        measured["efficiency"].append(float(efficiency_of(g @ mean, float(g @ g), mean @ mean + noise)))
        measured["cosine"].append(law.cosine)
        measured["error"].append(float((noise + law.bias @ law.bias) / (g @ g)))
    return measured


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the measures; on a language model's heads GRPO is compared with the leave-one-out mean."""
    problem, sizes = gt.gallery.problem(settings["problem"]), settings["group_sizes"]
    by_name = {name: measures(problem, name, sizes) for name in ESTIMATORS}
    for name, measured in by_name.items():
        common = {"problem": problem.name, "estimator": name, "responses": RESPONSES}
        for quantity, values in measured.items():
            for size, value in zip(sizes, values, strict=True):
                yield common | {"group_size": size, "quantity": quantity, "estimate": value}
    if settings["problem"] in JUDGED:
        yield from _judged(settings["problem"], sizes, by_name)


def _judged(problem: str, sizes: list[int], by_name: dict[str, dict[str, list[float]]]) -> Iterator[Comparison]:
    """GRPO against the leave-one-out mean: best group sizes, best efficiencies, and what is lost with 32 responses."""
    efficiency = {name: np.array(measured["efficiency"]) for name, measured in by_name.items()}
    best = {name: sizes[int(values.argmax())] for name, values in efficiency.items()}
    most = {name: float(values.max()) for name, values in efficiency.items()}
    lost = {name: most[name] / float(values[sizes.index(LARGE)]) for name, values in efficiency.items()}
    by_error = int(np.argmin(by_name["grpo"]["error"]))
    facts = {f"best group size, {name}": float(best[name]) for name in ("rloo", "grpo")}
    facts |= {f"best efficiency, {name}": most[name] for name in ("rloo", "grpo")}
    for statement, less, broken in (
        (LARGER_GROUPS, best["rloo"] - best["grpo"], best["rloo"] - sizes[by_error]),
        (BEST_SIZES, most["rloo"] - most["grpo"], most["rloo"] - efficiency["grpo"][by_error]),
        (AT_32, lost["grpo"] - lost["rloo"], lost["multiplied"] - lost["rloo"]),
    ):
        yield statement.compare(problem, less, 0.0, broken=broken, facts=facts)
