"""U9: the scaling law's constants along training, exactly.

The study measures how far the best group size moves from that of the start while the policy learns. It also measures what it
costs to keep that of the start. In one control the path is one along which the best group size is known to grow without bound
(docs/derivations.md, section 14). In the other the group size that is kept is the best one for prompts without spread.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import noise_free_path
from simulations.statements import stated
from simulations.training.cases import CASES, FAR, best_along, case_law, case_problem, case_settings, case_steps, schedule_label
from simulations.training.grid import HALF_DOUBLING

STAYS, KEPT = stated("U9/stays", "U9/kept")

OTHER_STEPS = tuple(("kl-linear", FAR, ("Constant", step)) for step in (0.25, 1.0, 4.0))
LANGUAGE_MODEL = ("lm-few-shot", None, ("Constant", 0.005))
CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
GROUP_SIZES = tuple(range(2, 129))
GROWING = ("kl-tabular", None, ("Constant", 2.0))
HALF_A_POWER = 2.0**0.5
"""Group sizes are powers of 2 in practice: a best size that moves by less than this moves by less than half a step."""
WITHOUT_SPREAD = float(GROUP_SIZES[-1])
"""The control's group size: the best one up to 128 if all prompts had one gradient, c1 = 0."""


def cells(quick: bool) -> list[Cell]:
    """Every case, one of them with other steps, and the language model's head; quick follows the model for fewer steps."""
    on_problems = [Cell(case_settings(*case) | {"checkpoints": list(CHECKPOINTS)}) for case in (*CASES, *OTHER_STEPS)]
    few = [n for n in CHECKPOINTS if n <= (4 if quick else CHECKPOINTS[-1])]
    return [*on_problems, Cell(case_settings(*LANGUAGE_MODEL) | {"checkpoints": few})]


def constants(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield the constants at the noise-free iterates, and the optimum there, which is predicted to be that of the start."""
    problem, checkpoints = case_problem(settings), settings["checkpoints"]
    path = noise_free_path(problem, problem.theta, case_steps(settings, checkpoints[-1]))
    start = gt.group_size_law(problem, path[0]).optimum
    for n in checkpoints:
        law = gt.group_size_law(problem, path[n])
        row = {"problem": problem.name, "schedule": schedule_label(settings), "checkpoint": n}
        row |= {"prediction": start, "objective": float(gt.objective(problem, path[n]))}
        row |= {"c1": law.c1, "c2": law.c2, "c3": law.c3, "estimate": law.optimum, "paper_optimum": law.paper_optimum}
        yield row | (policy_facts(settings, n) if settings["problem"] != LANGUAGE_MODEL[0] else {})


def policy_facts(settings: Settings, n: int) -> dict[str, float]:
    """Return the policy's own optimum after n steps, and N times the loss of four plans of group sizes, to first order."""
    if n == 0:
        return {}
    problem, law = case_problem(settings), case_law(settings, n)
    budget = GROUP_SIZES[-1]
    current = best_along(problem, law.path[:-1], np.array(GROUP_SIZES), budget)
    fixed = min(law.loss(budget, size) for size in GROUP_SIZES)
    ahead = law.loss(budget, law.best_schedule(GROUP_SIZES))
    facts = {"policy_optimum": law.optimum, "start": law.loss(budget, current[0]), "fixed": fixed}
    return facts | {"current": law.loss(budget, current), "ahead": ahead}


def largest_excess(path: pd.DataFrame, kept: float) -> float:
    """Return the largest ratio, over the checkpoints, of the error with a group size kept to that with the best one."""
    errors = [
        [c1 * size + c2 + c3 / (size - 1.0) for size in np.clip([kept, best], GROUP_SIZES[0], GROUP_SIZES[-1])]
        for c1, c2, c3, best in path[["c1", "c2", "c3", "estimate"]].to_numpy()
    ]
    return largest([own / least for own, least in errors])


def move(optima: pd.Series) -> float:
    """Return the largest move of the best group size from that of the start, in logarithms."""
    return largest(np.abs(np.log(optima / optima.iloc[0])))


@cache
def growing_move() -> float:
    """Return the move along the path on which the best group size grows."""
    return move(pd.DataFrame(constants(case_settings(*GROWING) | {"checkpoints": CHECKPOINTS}))["estimate"])


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the constants along a path, and what becomes of the best group size there."""
    rows = list(constants(settings))
    yield from rows
    yield from judged(pd.DataFrame(rows))


def judged(path: pd.DataFrame) -> Iterator[Comparison]:
    """Yield how far the best group size moves along a path, and what it costs to keep that of the start."""
    where, optima = f"{path['problem'].iloc[0]}, {path['schedule'].iloc[0]}", path["estimate"]
    facts = {"G* at the start": float(optima.iloc[0]), "least": float(optima.min()), "greatest": float(optima.max())}
    yield STAYS.compare(where, move(optima), np.log(HALF_A_POWER), broken=growing_move(), facts=facts)
    own, broken = (largest_excess(path, kept) for kept in (float(optima.iloc[0]), WITHOUT_SPREAD))
    yield KEPT.compare(where, own, HALF_DOUBLING, broken=broken, facts=facts)
