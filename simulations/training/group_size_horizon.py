"""U9: which trace decides for the policy near its maximiser.

From a maximiser on, the scaling law's constants stand still, and yet the best group size depends on how long one trains. The
gradient's best group size is compared with the policy's, and with the law, at two horizons. In the controls a group size that is
known to lose more replaces the better one, or the law is that of the other horizon.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import difference, distance, summary
from grpo_theory.harness import check, run
from grpo_theory.theory import training_law
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.controlled import collected, guide, objectives_by_group_size

PROBLEM = "two-speeds"
STEP = 0.05
BUDGET = 120
SMALL, LARGE = 4, 10
"""The group size of the gradient's least error, and that of the least loss after one step."""
WRONG = 40
"""The control's: what a law asks for that takes c3 for more than twenty times what it is, 3 prompts in a batch."""
RUNS = {1: 512, 100: 128}
MARGIN = 0.1
"""A loss that is a tenth off is a budget that is a tenth off: half of what `group_size` allows, as the constants stand still."""


WHERE = "{problem}, Constant({step:g}), N = {budget}, n = {steps}"
SETTINGS = {"problem": PROBLEM, "step": STEP, "budget": BUDGET}


def cases(quick):
    """One step from the maximiser, and many."""
    return [SETTINGS | {"steps": steps, "runs": runs} for steps, runs in RUNS.items()]


def rest_law(problem, steps):
    """Return the law of a constant step from a problem's theta, which is its maximiser."""
    gt.exact.check_optimum(problem, problem.theta)
    return training_law(problem, problem.theta, gt.Constant(STEP), steps=steps)


@run()
def trained(rng, **case):
    """Train from the maximiser with each group size; return the objectives and their controls."""
    problem, n, settings = gt.gallery.problem(case["problem"]), case["steps"], case | {"group_sizes": [SMALL, LARGE, WRONG]}
    return objectives_by_group_size(problem, [guide(rest_law(problem, n))], np.full(n, STEP), settings, seed_of(rng))


def measured(found, steps):
    """Return the gaps by group size, with the law's prediction and that of the other horizon's formula."""
    problem = gt.gallery.problem(PROBLEM)
    law, gradient_law = rest_law(problem, steps), gt.group_size_law(problem, problem.theta)
    facts = {"quantity": "simulated", "gradient_optimum": gradient_law.optimum, "optimum": law.optimum}
    table = {}
    for size, sample in zip((SMALL, LARGE, WRONG), collected(found)[:, :, 0], strict=True):
        stationary = STEP / 4.0 * float(gradient_law.mse(BUDGET / size, size))
        wrong = stationary if steps == 1 else steps * rest_law(problem, 1).loss(BUDGET, size)
        table[size] = facts | {"prediction": law.loss(BUDGET, size), "wrong": wrong} | summary(law.objective - sample)
    return table


@check(*stated("U9/trace", "U9/curvature", "U9/gap"), of=trained, cases=cases, broken={"wrong": True}, setting=WHERE)
def horizons(found, steps, wrong=False):
    """The gradient's best group size against the policy's, and the law."""
    at, sides = measured(found, steps), {}
    best, rival = sorted((SMALL, LARGE), key=lambda size: at[size]["prediction"])
    facts = {"policy's optimum": at[SMALL]["optimum"], "gradient's": at[SMALL]["gradient_optimum"]}
    for name, chosen, other in (("U9/trace", SMALL, LARGE), ("U9/curvature", best, rival)):
        lost = {"control loses, by the law": at[WRONG]["prediction"] / at[other]["prediction"] - 1.0}
        sides[name] = difference(at[WRONG if wrong else chosen], at[other]), facts | lost
    return {**sides, "U9/gap": distance(at[best], at[best]["wrong" if wrong else "prediction"], MARGIN)}
