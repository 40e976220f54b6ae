"""Every registered estimator, yours included: squared error and efficiency.

Both are simulated, and exact by enumeration where that is in reach. In the control the driver draws one prompt too many in every
second batch.
"""

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.exact.group_law import efficiency_of
from grpo_theory.harness import check, rows
from simulations.gradient.cells import error_of, gradient_cases, merge, row_of, simulated
from simulations.statements import stated

ERROR, EFFICIENCY, SIMULATED = stated("estimator", "efficiency", "efficiency/simulated")
PROBLEMS = ("tabular", "sequence-shared", "lm-few-shot")
GROUP_SIZES = (4, 16, 64)
JUDGED = {4: (ERROR, "mse", 0.0), 64: (SIMULATED, "efficiency", 0.1)}
"""By group size, what is claimed there, of exact values from some least one on. There an error depends most on its second order,
or an efficiency has the least noise. To know one below a tenth to 2% takes millions of batches."""

drawn = simulated()


def cases(quick):
    """Each estimator by itself, so that a new kernel adds cases and changes none; not those of trainers."""
    return [
        {"estimator": name, **one}
        for name, estimator in gt.estimators().items()
        if name not in CONVENTIONS
        for one in gradient_cases(quick, GROUP_SIZES, batch_size=4, problems=PROBLEMS)
        if one["group_size"] >= estimator.advantage.minimum_group_size
    ]


def exact(problem, estimator, batch_size, group_size):
    """Return the exact error and efficiency, each right and of a driver that draws more; nothing where that is out of reach."""
    problem, sizes = gt.gallery.problem(problem), (batch_size, batch_size + 1)
    common = (problem, problem.theta, estimator)
    try:
        law, larger = (gt.gradient_law(*common, batch_size=size, group_size=group_size) for size in sizes)
    except gt.NotEnumerableError:
        return {}
    g, squared = law.true_gradient, 0.5 * (law.mean_squared_norm + larger.mean_squared_norm)
    efficiency = float(efficiency_of(g @ law.mean, float(g @ g), squared))
    return {"mse": (law.mse, 0.5 * (law.mse + larger.mse)), "efficiency": (law.efficiency, efficiency)}


def judged(quick):
    """Those of which something is claimed."""
    return [one for one in cases(quick) if one["group_size"] in JUDGED]


@check(ERROR, SIMULATED, of=drawn, cases=judged, broken={"larger": True}, setting="{problem} ({estimator})")
def equalities(found, problem, estimator, batch_size, group_size, larger=False):
    """What is simulated equals what is exact, of each estimator on each problem."""
    one, quantity, least = JUDGED[group_size]
    right, wrong = exact(problem, estimator, batch_size, group_size).get(quantity, (-1.0, 0.0))
    if right < least:
        return None
    facts = {"wrong law / law": wrong / right}
    return {one.id: (error_of(merge(found), quantity, estimator), wrong if larger else right, facts)}


@rows(of=drawn, cases=cases)
def measures(found, problem, estimator, batch_size, group_size):
    """Both measures, beside exact ones where enumeration is in reach."""
    known = exact(problem, estimator, batch_size, group_size)
    for quantity in ("mse", "efficiency"):
        yield row_of(merge(found), quantity, estimator) | ({"prediction": known[quantity][0]} if known else {})
