"""U9: a group size that follows the policy against a fixed one.

Both have the same budget, and an oracle makes the plans of group sizes. In the control the group size moves against the policy.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import difference, distance
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated
from simulations.training.cases import FAR, best_along, case_law, case_problem, case_settings, case_steps, schedule_label
from simulations.training.controlled import controlled, controlled_objectives, guide, loss
from simulations.training.grid import on_grid

FOLLOW, HINDSIGHT = stated("U9/follow", "U9/hindsight")

CASES = ((("kl-linear", FAR, ("Constant", 2.0)), 32), (("kl-tabular", None, ("Constant", 2.0)), 16))
BUDGET = 1080
"""It has 19 divisors from 2 to 120."""
RUNS, CHUNK_RUNS, QUICK_RUNS = 1024, 256, 128
PLANS = ("start", "fixed", "current", "ahead", "against")
MARGIN = 0.15
"""A loss that is 15% off is a budget that is 15% off. It is a fifth of the way to the next one, which is twice as large."""


def cells(quick: bool) -> list[Cell]:
    """Two cases in which the best group size rises while the policy learns."""
    runs = QUICK_RUNS if quick else RUNS
    chunk = min(runs, CHUNK_RUNS)
    sizes = [size for size in range(2, 121) if BUDGET % size == 0]
    return [
        Cell(case_settings(*case) | {"budget": BUDGET, "group_sizes": sizes, "steps": steps, "runs": chunk}, runs // chunk)
        for case, steps in CASES
    ]


def plans(settings: Settings) -> dict[str, np.ndarray]:
    """Return the group size of every step for each plan, shape (n,).

    - start: the best for the gradient's error at the start, kept;
    - fixed: the best fixed one for the final policy;
    - current: the best for the gradient's error at the noise-free iterate of the step;
    - ahead: the best schedule for the final policy;
    - against, the control: where the best group size doubles, it halves.

    All but the first need what only an oracle knows: the exact moments along the path.
    """
    problem, sizes, steps = case_problem(settings), np.array(settings["group_sizes"]), settings["steps"]
    law = case_law(settings, steps)
    current = best_along(problem, law.path[:-1], sizes, settings["budget"])
    fixed = sizes[np.argmin([law.loss(settings["budget"], size) for size in sizes])]
    ahead = law.best_schedule(sizes).astype(np.int64)
    against = np.array([on_grid(current[0] ** 2 / size, sizes) for size in current])
    kept = {"start": np.full(steps, current[0]), "fixed": np.full(steps, fixed)}
    return kept | {"current": current, "ahead": ahead, "against": against}


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train with every plan; return the objective of each run and its controls."""
    problem, steps = case_problem(settings), settings["steps"]
    objectives = {}
    for number, (name, sizes) in enumerate(plans(settings).items()):
        plain, controls = controlled_objectives(
            problem,
            [guide(case_law(settings, steps))],
            case_steps(settings, steps),
            sizes.tolist(),
            budget=settings["budget"],
            runs=settings["runs"],
            seed=child_seed(seed_of(rng), number),
        )
        objectives[name] = [plain[:, 0].tolist(), *controls[:, :, 0].tolist()]
    return objectives


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each plan and step: the group size of the step, and the plan's loss, simulated and to first order."""
    problem, steps, budget = case_problem(settings), settings["steps"], settings["budget"]
    law = case_law(settings, steps)
    common = {"problem": problem.name, "schedule": schedule_label(settings), "budget": budget, "steps": steps}
    table: Rows = []
    for name, sizes in plans(settings).items():
        plain, *controls = np.concatenate([chunk[name] for chunk in results], axis=1)[..., None]
        sample = controlled(plain, np.array(controls))[:, 0]
        row = common | {"plan": name, "prediction": law.loss(budget, sizes)} | loss(sample, law.objective)
        table += [row | {"step": i, "group_size": int(size)} for i, size in enumerate(sizes, 1)]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Following the policy beats the start's group size, and loses as much as the best fixed one."""
    keys = ["problem", "schedule", "budget", "steps"]
    for names, part in table[table["step"] == 1].groupby(keys, sort=False):
        where, at = "{}, {}, N = {}, n = {}".format(*names), part.set_index("plan")
        losses = at["prediction"]
        facts = {f"loss of {name} / fixed, to first order": float(losses[name] / losses["fixed"]) for name in PLANS}
        own, control = (difference(at.loc[plan], at.loc["start"]) for plan in ("current", "against"))
        yield FOLLOW.claim(where, own, control, facts=facts)
        own, control = (distance(at.loc[plan], float(losses["fixed"]), MARGIN) for plan in ("current", "against"))
        yield HINDSIGHT.claim(where, own, control, facts=facts)
