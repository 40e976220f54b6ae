"""Estimators compared without their scale: efficiency against the group size, at one budget, exact.

A learning rate undoes any factor on an estimator, so a squared error about the gradient compares only those with one mean.
Efficiency compares them all, for one step: (g . E ghat)^2/(||g||^2 E||ghat||^2).
"""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.centring import centre
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, highest
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.gradient.groups import RESPONSES

GROUP_SIZES = (*range(2, 17), 20, 24, 32, 48, 64)
LARGE = 32
"""The group size that arXiv 2603.01162 reports as the best one."""
JUDGED = ("lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
"""A language model's heads.  On the made-up problems, of 4 to 16 prompts, 1,024 responses leave next to no noise to compare."""


def multiplied(batch, advantages):
    """Broken: the group's deviation multiplies the advantages in the place of dividing them."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        for g in range(group_size):
            advantages[b, g] *= deviation


ESTIMATORS: dict[str, Estimator] = {name: find(name) for name in ("reinforce", "rloo", "grpo", "max_rl")}
ESTIMATORS["multiplied"] = make_estimator("multiplied", multiplied, minimum_group_size=2)


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and estimator; exact, and a quick run looks at one of the heads and half of the group sizes."""
    problems = ("lm-few-shot",) if quick else (*gt.gallery.names("gradient"), "lm-answers")
    sizes = GROUP_SIZES[::2] if quick else GROUP_SIZES
    common = {"responses": RESPONSES, "group_sizes": sorted({*sizes, LARGE})}
    return [Cell({"problem": problem, "estimator": name, **common}) for problem in problems for name in ESTIMATORS]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, list[float]]:
    """Return efficiency, cosine, and squared error relative to ||g||^2 at each group size, with N/G prompts, whole or not."""
    problem = gt.gallery.problem(settings["problem"])
    point = problem.at(problem.theta)
    found: dict[str, list[float]] = {"efficiency": [], "cosine": [], "error": []}
    for size in settings["group_sizes"]:
        law = gt.exact.law_between(point, point, ESTIMATORS[settings["estimator"]], batch_size=1, group_size=size)
        noise, g, mean = law.trace * size / settings["responses"], law.true_gradient, law.mean
        found["efficiency"].append(float(efficiency_of(g @ mean, float(g @ g), mean @ mean + noise)))
        found["cosine"].append(law.cosine)
        found["error"].append(float((noise + law.bias @ law.bias) / (g @ g)))
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each group size and quantity."""
    common = {name: settings[name] for name in ("problem", "estimator", "responses")}
    return [
        common | {"group_size": size, "quantity": quantity, "prediction": np.nan, "estimate": value} | EXACT
        for quantity, values in results[0].items()
        for size, value in zip(settings["group_sizes"], values, strict=True)
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """GRPO against the leave-one-out mean, on a language model's heads.

    The controls: GRPO's group size by squared error, which takes a factor for an error; and the broken estimator in its place.
    """
    found = []
    for problem in (name for name in JUDGED if name in set(table["problem"])):
        own = table[table["problem"] == problem].pivot(index="group_size", columns=["quantity", "estimator"], values="estimate")
        efficiency, by_error = own["efficiency"], highest(-own["error", "grpo"])
        best, most = efficiency.idxmax(), efficiency.max()
        lost = most / efficiency.loc[LARGE]
        facts = {f"best group size, {name}": float(best[name]) for name in ("rloo", "grpo")}
        facts |= {f"best efficiency, {name}": float(most[name]) for name in ("rloo", "grpo")}
        found += [
            claim(statement, problem, exact(mine, 0.0), exact(broken, 0.0), facts=facts)
            for statement, mine, broken in (
                ("efficiency/larger groups", best["rloo"] - best["grpo"], best["rloo"] - by_error),
                ("efficiency/best sizes", most["rloo"] - most["grpo"], most["rloo"] - efficiency.loc[by_error, "grpo"]),
                ("efficiency/at 32", lost["grpo"] - lost["rloo"], lost["multiplied"] - lost["rloo"]),
            )
        ]
    return found


STUDY = unconverted(
    "efficiency",
    "Efficiency of estimators with different means, against the group size, exact",
    cells,
    compute,
    rows,
    claims,
    ("efficiency/larger groups", "efficiency/best sizes", "efficiency/at 32"),
)
