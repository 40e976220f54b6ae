"""U9: the scaling law's constants along training, exactly.

The study measures how far the best group size moves from that of the start while the policy learns. It also measures what it
costs to keep that of the start. In one control the path is one along which the best group size is known to grow without bound
(docs/derivations.md, section 14). In the other the group size that is kept is the best one for prompts without spread.
"""

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.harness import check, run
from grpo_theory.theory import noise_free_path
from simulations.statements import stated
from simulations.training.cases import CASE_AT, best_along, case_law, case_problem, case_steps
from simulations.training.grid import HALF_DOUBLING

CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
QUICK_LAST, LANGUAGE_MODEL = 4, "lm-few-shot"
GROUP_SIZES = tuple(range(2, 129))
GROWING = {"problem": "kl-tabular", "schedule": "Constant(2)", "last": 3}
"""The control's path: after three steps the best group size has moved by three times the bound, and it grows without bound."""
HALF_A_POWER = 2.0**0.5
"""Group sizes are powers of 2 in practice: a best size that moves by less than this moves by less than half a step."""
WITHOUT_SPREAD = float(GROUP_SIZES[-1])
"""The control's group size: the best one up to 128 if all prompts had one gradient, c1 = 0."""


def cases(quick):
    """Every case, one of them with other steps, and the language model's head; quick follows the model for fewer steps."""
    short = QUICK_LAST if quick else CHECKPOINTS[-1]
    return [
        {"problem": name, "schedule": schedule, "last": short if name == LANGUAGE_MODEL else CHECKPOINTS[-1]}
        for name, schedule in CASE_AT
    ]


@run()
def path(problem, schedule, last):
    """Return the constants at the noise-free iterates, and N times the loss of four plans of group sizes, to first order.

    The optimum there is predicted to be that of the start. What is about plans is the policy's own, after some steps.
    """
    case, table = CASE_AT[problem, schedule], []
    found = case_problem(case)
    iterates = noise_free_path(found, found.theta, case_steps(case, last))
    for n in (one for one in CHECKPOINTS if one <= last):
        law = gt.group_size_law(found, iterates[n])
        row = {"checkpoint": n, "objective": float(gt.objective(found, iterates[n])), "c1": law.c1, "c2": law.c2, "c3": law.c3}
        row |= {"estimate": law.optimum, "paper_optimum": law.paper_optimum}
        if n > 0 and problem != LANGUAGE_MODEL:
            policy, budget = case_law(case, n), GROUP_SIZES[-1]
            current = best_along(found, policy.path[:-1], np.array(GROUP_SIZES), budget)
            best = policy.best_schedule(GROUP_SIZES)
            row |= {"policy_optimum": policy.optimum, "start": policy.loss(budget, current[0])}
            row |= {"fixed": min(policy.loss(budget, size) for size in GROUP_SIZES)}
            row |= {"current": policy.loss(budget, current), "ahead": policy.loss(budget, best)}
        table.append(row)
    return pd.DataFrame(table).to_dict("list")


@check(stated("U9/stays"), of=path, cases=cases, broken=GROWING, setting="{problem}, {schedule}")
def stays(found):
    """How far the best group size moves from that of the start, in logarithms; broken: along a path on which it grows."""
    optima = found["estimate"]
    return float(np.abs(np.log(optima / optima[0])).max()), np.log(HALF_A_POWER), facts(optima)


@check(stated("U9/kept"), of=path, cases=cases, broken={"kept": WITHOUT_SPREAD}, setting="{problem}, {schedule}")
def kept(found, kept=None):
    """The error with a group size kept over that with the best one; broken: the one for prompts without spread is kept."""
    optima = found["estimate"]
    own, best = (np.clip(size, GROUP_SIZES[0], GROUP_SIZES[-1]) for size in (kept or optima[0], optima))
    errors = (found["c1"] * size + found["c2"] + found["c3"] / (size - 1.0) for size in (own, best))
    return np.divide(*errors).max(), HALF_DOUBLING, facts(optima)


def facts(optima):
    """Return what a path does to the best group size."""
    return {"G* at the start": optima[0], "least": optima.min(), "greatest": optima.max()}
