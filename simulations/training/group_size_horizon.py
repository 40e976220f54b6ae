"""U9: which trace decides for the policy near its maximiser.

From a maximiser on, the scaling law's constants stand still, and yet the best group size depends on how long one trains. The
gradient's best group size is compared with the policy's, and with the law, at two horizons. In the controls a group size that is
known to lose more replaces the better one, or the law is that of the other horizon.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import difference, distance
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.theory import TrainingLaw, training_law
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.controlled import collected, guide, objectives_by_group_size

TRACE, CURVATURE, GAP = stated("U9/trace", "U9/curvature", "U9/gap")

PROBLEM = "two-speeds"
STEP = 0.05
BUDGET = 120
SMALL, LARGE = 4, 10
"""The group size of the gradient's least error, and that of the least loss after one step."""
WRONG = 40
"""The control's: what a law asks for that takes c3 for more than twenty times what it is, 3 prompts in a batch."""
RUNS = {1: 2048, 100: 512}
QUICK_SHARE = 4
EXACT_STEPS = (*range(1, 20), *range(20, 50, 3), *range(50, 101, 5))
MARGIN = 0.1
"""A loss that is a tenth off is a budget that is a tenth off: half of what `group_size` allows, as the constants stand still."""


def cells(quick: bool) -> list[Cell]:
    """One step from the maximiser, and many."""
    shared = {"problem": PROBLEM, "step": STEP, "budget": BUDGET, "group_sizes": [SMALL, LARGE, WRONG]}
    return [
        Cell(shared | {"steps": steps, "runs": runs // QUICK_SHARE if quick else runs // 2}, 1 if quick else 2)
        for steps, runs in RUNS.items()
    ]


def problem_at_rest(name: str) -> gt.Problem:
    """Return a training problem whose theta, where it starts, is its maximiser."""
    problem = gt.gallery.problem(name)
    gt.exact.check_optimum(problem, problem.theta)
    return problem


def rest_law(problem: gt.Problem, step: float, steps: int) -> TrainingLaw:
    """Return the law of a constant step from a problem's theta."""
    return training_law(problem, problem.theta, gt.Constant(step), steps=steps)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train from the maximiser with each group size; return the objectives and their controls."""
    problem = problem_at_rest(settings["problem"])
    steps = np.full(settings["steps"], settings["step"])
    guides = [guide(rest_law(problem, settings["step"], settings["steps"]))]
    return objectives_by_group_size(problem, guides, steps, settings, seed_of(rng))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """A row for each group size, with the law's prediction and that of the other horizon's formula; exact rows for the figure."""
    problem = problem_at_rest(settings["problem"])
    budget, step, steps = settings["budget"], settings["step"], settings["steps"]
    law, (_, objectives) = rest_law(problem, step, steps), collected(results)
    gradient_law = gt.group_size_law(problem, problem.theta)
    table: Rows = []
    for size, sample in zip(settings["group_sizes"], objectives[:, :, 0], strict=True):
        stationary = step / 4.0 * float(gradient_law.mse(budget / size, size))
        one_step = steps * rest_law(problem, step, 1).loss(budget, size)
        row = {"quantity": "simulated", "steps": steps, "group_size": size, "optimum": law.optimum}
        row |= {"prediction": law.loss(budget, size), "wrong": stationary if steps == 1 else one_step}
        table.append(row | summary(law.objective - sample))
    if steps == 1:
        optima = {n: rest_law(problem, step, n).optimum for n in EXACT_STEPS}
        exact = {"quantity": "exact", "prediction": np.nan, **EXACT}
        table += [exact | {"steps": n, "estimate": optimum} for n, optimum in optima.items()]
    common = {"problem": problem.name, "step": step, "budget": budget, "gradient_optimum": gradient_law.optimum}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge, at each horizon, the gradient's best group size against the policy's, and the law."""
    for steps, part in table[table["quantity"] == "simulated"].groupby("steps", sort=False):
        at = part.set_index("group_size")
        where = f"{PROBLEM}, Constant({STEP:g}), N = {BUDGET}, n = {steps}"
        best = int(at.loc[[SMALL, LARGE], "prediction"].idxmin())
        rival = LARGE if best == SMALL else SMALL
        facts = {"policy's optimum": float(at["optimum"].iloc[0]), "gradient's": float(at["gradient_optimum"].iloc[0])}
        for statement, chosen, other in ((TRACE, SMALL, LARGE), (CURVATURE, best, rival)):
            lost = {"control loses, by the law": float(at.loc[WRONG, "prediction"] / at.loc[other, "prediction"] - 1.0)}
            own, control = (difference(at.loc[size], at.loc[other]) for size in (chosen, WRONG))
            yield statement.claim(where, own, control, facts=facts | lost)
        own, control = (distance(at.loc[best], float(at.loc[best, name]), MARGIN) for name in ("prediction", "wrong"))
        yield GAP.claim(where, own, control)
