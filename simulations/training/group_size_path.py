"""U9, exactly: the scaling law's constants and the best group size along the path of training."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.theory import noise_free_path
from simulations.claims import claim
from simulations.harness.evidence import exact, largest
from simulations.harness.study import Cell, Rows, Settings, Study
from simulations.training.cases import CASES, FAR, case_law, case_problem, case_settings, case_steps, schedule_label

OTHER_STEPS = tuple(("kl-linear", FAR, ("Constant", step)) for step in (0.25, 1.0, 4.0))
LANGUAGE_MODEL = ("lm-few-shot", None, ("Constant", 0.005))
CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
GROUP_SIZES = tuple(range(2, 129))
TOLERANCE = 0.1


def cells(quick: bool) -> list[Cell]:
    """Every case, one of them with other steps, and the language model's head; quick follows the model for fewer steps."""
    found = [Cell(case_settings(*case) | {"checkpoints": list(CHECKPOINTS)}) for case in (*CASES, *OTHER_STEPS)]
    few = [n for n in CHECKPOINTS if n <= (4 if quick else CHECKPOINTS[-1])]
    return [*found, Cell(case_settings(*LANGUAGE_MODEL) | {"checkpoints": few})]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, float]]:
    """Return the constants at the noise-free iterates; exact, so nothing is drawn."""
    problem, checkpoints = case_problem(settings), settings["checkpoints"]
    path = noise_free_path(problem, problem.theta, case_steps(settings, checkpoints[-1]))
    found = []
    for n in checkpoints:
        law = gt.group_size_law(problem, path[n])
        row = {"checkpoint": n, "objective": float(gt.objective(problem, path[n]))}
        row |= {"c1": law.c1, "c2": law.c2, "c3": law.c3, "estimate": law.optimum, "paper_optimum": law.paper_optimum}
        found.append(row | (_policy_facts(settings, n) if settings["problem"] != LANGUAGE_MODEL[0] else {}))
    return found


def _policy_facts(settings: Settings, n: int) -> dict[str, float]:
    """The policy's own optimum after n steps, and N times the loss of four plans of group sizes, to first order."""
    if n == 0:
        return {}
    problem, law = case_problem(settings), case_law(settings, n)
    laws = [gt.group_size_law(problem, theta) for theta in law.path[:-1]]
    sizes, budget = np.array(GROUP_SIZES), GROUP_SIZES[-1]
    current = np.array([sizes[np.argmin(found.mse(budget / sizes, sizes))] for found in laws])
    fixed = min(law.loss(budget, size) for size in GROUP_SIZES)
    ahead = law.loss(budget, law.best_schedule(GROUP_SIZES))
    facts = {"policy_optimum": law.optimum, "start": law.loss(budget, current[0]), "fixed": fixed}
    return facts | {"current": law.loss(budget, current), "ahead": ahead}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint: the optimum there, predicted to be that of the start."""
    common: dict[str, Any] = {"problem": case_problem(settings).name, "schedule": schedule_label(settings)}
    common |= {"prediction": results[0][0]["estimate"], "standard_error": 0.0, "replications": 0}
    return [common | row for row in results[0]]


def _nearness_claim(statement: str, where: str, optima: np.ndarray, facts: dict[str, float]) -> Claim:
    """All the group sizes are near the first; the control asks for a hundredth of the tolerance."""
    farthest = largest(np.abs(np.log(optima / optima[0])))
    both = (exact(farthest, np.log1p(bound)) for bound in (TOLERANCE, TOLERANCE / 100.0))
    return claim(statement, where, *both, facts=facts)


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge whether the best group size stays where it was at the start, and whether schedules share the policy's."""
    found = []
    for (problem, schedule), part in table.groupby(["problem", "schedule"], sort=False):
        optima = part["estimate"].to_numpy()
        facts = {"G* at the start": float(optima[0]), "least": float(optima.min()), "greatest": float(optima.max())}
        found.append(_nearness_claim("U9/stays", f"{problem}, {schedule}", optima, facts=facts))
    last = table[table["checkpoint"] == CHECKPOINTS[-1]]
    for problem, part in last.groupby("problem", sort=False):
        if len(part) > 1:
            optima = part["policy_optimum"].clip(GROUP_SIZES[0], GROUP_SIZES[-1])
            facts = dict(zip(part["schedule"], optima, strict=True))
            found.append(_nearness_claim("U9/schedules", str(problem), optima.to_numpy(), facts=facts))
    return found


STUDY = Study(
    "group_size_path",
    "U9: the scaling law's constants along training, exactly",
    cells,
    compute,
    rows,
    claims,
    ("U9/stays", "U9/schedules"),
)
