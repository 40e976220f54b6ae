"""U9: a group size that follows the policy against a fixed one.

Both have the same budget, and an oracle makes the plans of group sizes. In the control the group size moves against the policy.
"""

import numpy as np

from grpo_theory.evidence.reading import difference, distance
from grpo_theory.harness import check, run
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated
from simulations.training.cases import CASE_AT, best_along, case_law, case_problem, case_steps
from simulations.training.controlled import controlled, controlled_objectives, guide, loss
from simulations.training.grid import on_grid

CASES = (("kl-linear", "Constant(2)", 32), ("kl-tabular", "Constant(2)", 16))
BUDGET = 1080
"""It has 19 divisors from 2 to 120."""
SIZES = [size for size in range(2, 121) if BUDGET % size == 0]
WHERE = "{problem}, {schedule}, N = {budget}, n = {steps}"
RUNS, QUICK_RUNS = 256, 128
MARGIN = 0.15
"""A loss that is 15% off is a budget that is 15% off. It is a fifth of the way to the next one, which is twice as large."""


def cases(quick):
    """Two cases in which the best group size rises while the policy learns."""
    common = {"budget": BUDGET, "runs": QUICK_RUNS if quick else RUNS}
    return [common | {"problem": problem, "schedule": schedule, "steps": steps} for problem, schedule, steps in CASES]


def plans(problem, schedule, steps):
    """Return the group size of every step for each plan, shape (n,).

    - start: the best for the gradient's error at the start, kept;
    - fixed: the best fixed one for the final policy;
    - current: the best for the gradient's error at the noise-free iterate of the step;
    - ahead: the best schedule for the final policy;
    - against, the control: where the best group size doubles, it halves.

    All but the first need what only an oracle knows: the exact moments along the path.
    """
    case, sizes = CASE_AT[problem, schedule], np.array(SIZES)
    law = case_law(case, steps)
    current = best_along(case_problem(case), law.path[:-1], sizes, BUDGET)
    fixed = sizes[np.argmin([law.loss(BUDGET, size) for size in sizes])]
    ahead = law.best_schedule(sizes).astype(np.int64)
    against = np.array([on_grid(current[0] ** 2 / size, sizes) for size in current])
    start, best = np.full(steps, current[0]), np.full(steps, fixed)
    return {"start": start, "fixed": best, "current": current, "ahead": ahead, "against": against}


@run()
def trained(rng, problem, schedule, steps, budget, runs):
    """Train with every plan; return the objective of each run and its controls."""
    found = {}
    case = CASE_AT[problem, schedule]
    where = case_problem(case), [guide(case_law(case, steps))], case_steps(case, steps)
    for number, (name, sizes) in enumerate(plans(problem, schedule, steps).items()):
        seed = child_seed(seed_of(rng), number)
        plain, controls = controlled_objectives(*where, sizes.tolist(), budget=budget, runs=runs, seed=seed)
        found[name] = np.stack([plain[:, 0], *controls[:, :, 0]], axis=1)
    return found


def measured(found, problem, schedule, steps):
    """Return each plan's loss, simulated and to first order."""
    law, table = case_law(CASE_AT[problem, schedule], steps), {}
    for name, sizes in plans(problem, schedule, steps).items():
        plain, *controls = found[name].T[..., None]
        sample = controlled(plain, np.array(controls))[:, 0]
        table[name] = {"prediction": law.loss(BUDGET, sizes)} | loss(sample, law.objective)
    return table


@check(*stated("U9/follow", "U9/hindsight"), of=trained, cases=cases, broken={"plan": "against"}, setting=WHERE)
def following(found, problem, schedule, steps, plan="current"):
    """Following the policy beats the start's group size, and loses as much as the best fixed one."""
    at = measured(found, problem, schedule, steps)
    fixed = at["fixed"]["prediction"]
    facts = {f"loss of {name} / fixed, to first order": row["prediction"] / fixed for name, row in at.items()}
    sides = difference(at[plan], at["start"]), distance(at[plan], fixed, MARGIN)
    return {"U9/follow": (sides[0], facts), "U9/hindsight": (sides[1], facts)}
