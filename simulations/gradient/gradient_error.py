"""U3 to U5: simulated errors against the exact law.

The error of each estimator is simulated at G = 4 to 64. It is judged at G = 4, where the second-order term is largest. In the
control that term has G^2 for G(G-1), which is a quarter less.
"""

import grpo_theory as gt
from grpo_theory.harness import check, rows
from simulations.gradient.cells import error_of, gradient_cases, merge, row_of, simulated
from simulations.statements import stated

SIMULATED = stated("U3/simulated", "U4/simulated", "U5/simulated")
ESTIMATORS = ("reinforce", "oracle", "rloo", "dr_grpo", "grpo")
GROUP_SIZES = (4, 8, 16, 32, 64)

drawn = simulated(*ESTIMATORS)


def cases(quick):
    """Every problem at every group size; quick takes every other one, and fewer batches of the larger groups."""
    return gradient_cases(quick, GROUP_SIZES[::2] if quick else GROUP_SIZES, batch_size=4)


def judged(quick):
    """Those with groups of four."""
    return [one for one in cases(quick) if one["group_size"] == 4]


@check(*SIMULATED, of=drawn, cases=judged, broken={"own": 0}, setting="{problem}")
def equalities(found, problem, batch_size, group_size, own=1):
    """Errors of one prompt and of a batch, and the oracle's subtracted; broken, the law's last term has G^2."""
    simulation, problem = merge(found), gt.gallery.problem(problem)
    law = gt.group_size_law(problem, problem.theta)
    last = law.c3 / (group_size * (group_size - own))
    return {
        "U3/simulated": (error_of(simulation, "prompt_mse", "rloo"), law.c2 / group_size + last),
        "U4/simulated": (error_of(simulation, "mse", "rloo"), (law.c1 + law.c2 / group_size + last) / batch_size),
        "U5/simulated": (error_of(simulation, "mse", "rloo", "oracle"), last / batch_size),
    }


@rows(of=drawn, cases=cases)
def errors(found, problem, batch_size, group_size):
    """The error of the batch and of one prompt for each estimator, and for the paired difference of two, beside exact ones."""
    simulation, problem = merge(found), gt.gallery.problem(problem)
    sizes = {"batch_size": batch_size, "group_size": group_size}
    exact = {name: gt.gradient_law(problem, problem.theta, name, **sizes) for name in ESTIMATORS}
    for quantity in ("mse", "prompt_mse"):
        known = {name: float(getattr(one, quantity)) for name, one in exact.items()}
        for name in ESTIMATORS:
            yield row_of(simulation, quantity, name) | {"prediction": known[name]}
        yield row_of(simulation, quantity, "rloo", "oracle") | {"prediction": known["rloo"] - known["oracle"]}
