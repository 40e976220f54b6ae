"""U9, exactly: the scaling law's constants and the best group size along the path of training."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import noise_free_path
from simulations.claims import claim, unconverted
from simulations.training.cases import CASES, FAR, case_law, case_problem, case_settings, case_steps, schedule_label
from simulations.training.grid import HALF_DOUBLING

OTHER_STEPS = tuple(("kl-linear", FAR, ("Constant", step)) for step in (0.25, 1.0, 4.0))
LANGUAGE_MODEL = ("lm-few-shot", None, ("Constant", 0.005))
CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
GROUP_SIZES = tuple(range(2, 129))
GROWING = ("kl-tabular", "Constant(2)")
HALF_A_POWER = 2.0**0.5
"""Group sizes are powers of 2 in practice: a best size that moves by less than this moves by less than half a step."""
WITHOUT_SPREAD = float(GROUP_SIZES[-1])
"""The control's group size: the best one up to 128 if all prompts had one gradient, c1 = 0."""


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
    common |= {"prediction": results[0][0]["estimate"], **EXACT}
    return [common | row for row in results[0]]


def _largest_excess(part: pd.DataFrame, kept: float) -> float:
    """Return the largest ratio, over the checkpoints, of the error with a group size kept to that with the best one."""
    errors = [
        [c1 * size + c2 + c3 / (size - 1.0) for size in np.clip([kept, best], GROUP_SIZES[0], GROUP_SIZES[-1])]
        for c1, c2, c3, best in part[["c1", "c2", "c3", "estimate"]].to_numpy()
    ]
    return largest([own / least for own, least in errors])


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge how far the best group size moves from that of the start, and what it costs to keep that.

    The control of the first is a path along which the best group size is known to grow without bound (docs/derivations.md,
    section 14); that of the second keeps the best group size for prompts without spread.
    """
    found = []
    paths = dict(list(table.groupby(["problem", "schedule"], sort=False)))
    moves = {name: largest(np.abs(np.log(part["estimate"] / part["estimate"].iloc[0]))) for name, part in paths.items()}
    for name, part in paths.items():
        where, optima = ", ".join(map(str, name)), part["estimate"].to_numpy()
        facts = {"G* at the start": float(optima[0]), "least": float(optima.min()), "greatest": float(optima.max())}
        both = (exact(moves[one], np.log(HALF_A_POWER)) for one in (name, GROWING))
        found.append(claim("U9/stays", where, *both, facts=facts))
        both = (exact(_largest_excess(part, kept), HALF_DOUBLING) for kept in (float(optima[0]), WITHOUT_SPREAD))
        found.append(claim("U9/kept", where, *both, facts=facts))
    return found


STUDY = unconverted(
    "group_size_path",
    "U9: the scaling law's constants along training, exactly",
    cells,
    compute,
    rows,
    claims,
    ("U9/stays", "U9/kept"),
)
