"""U9, U4: the whole group size of least error, by enumeration.

The paper's c3/(BG^2) is part of a bound, and as a bound it holds (U4/printed). The paper offers its minimiser as the best group
size, so here it is compared with the group size that has the least error.

In one control c3 is four times too large, which asks for twice as many responses per prompt. In the control of the third term c2
is 5% too large, as an error estimated from 400 groups would make it.
"""

from math import sqrt

import grpo_theory as gt
from grpo_theory.harness import check, rows
from simulations.statements import stated

READINGS = ("printed", "remainder", "corrected")
"""The third term is c3/(BG^2); the same with E||W||^2 for c3; or c3/(BG(G-1))."""
U9, *PARTS = stated("U9", *(f"U9/best/{name}" for name in READINGS), "U4/term")
CASES = [{"problem": name} for name in gt.gallery.names("gradient") if gt.gallery.problem(name).bandit.n_prompts > 1]
"""If prompts do not differ, no group is too large."""
LARGEST = 4096


def first_rise(cost):
    """Return the whole number from 2 on at which a convex function is least: the last before it rises.

    Raises
    ------
    ValueError
        If it falls all the way to the largest that is tried.
    """
    least = cost(2)
    for size in range(2, LARGEST):
        following = cost(size + 1)
        if following >= least:
            return size
        least = following
    raise ValueError(f"cost must rise before {LARGEST}, got {least}")


def minimisers(c1, c3, power):
    """Return the whole group size of least error by each reading of the law, with power = E||W||^2."""
    laws = (lambda size: c1 * size + c3 / size, lambda size: c1 * size + power / size, lambda size: c1 * size + c3 / (size - 1))
    return dict(zip(READINGS, map(first_rise, laws), strict=True))


@check(*PARTS, cases=CASES, broken={"of_c3": 4.0, "of_c2": 1.05}, setting="{problem}")
def sizes(problem, of_c3=1.0, of_c2=1.0):
    """Each reading's whole minimiser beside the enumerated one, and whether the third term is one constant at both ends."""
    problem = gt.gallery.problem(problem)
    law, moments = gt.group_size_law(problem, problem.theta), gt.moments(problem, problem.theta)
    power = float(moments.prompt_weights @ moments.score_squared_norm)
    errors = {}

    def cost(size):
        errors[size] = gt.gradient_mse(problem, problem.theta, "rloo", batch_size=1, group_size=size)
        return size * errors[size]

    best, _ = first_rise(cost), cost(64)
    small, large = (size**2 * (errors[size] - law.c1 - of_c2 * law.c2 / size) / law.c3 for size in (2, 64))
    real = dict(zip(READINGS, (law.paper_optimum, sqrt(power / law.c1), law.optimum), strict=True))
    whole = minimisers(law.c1, of_c3 * law.c3, of_c3 * power)
    sides = {f"U9/best/{name}": (best, whole[name], {"over real G": real[name]}) for name in READINGS}
    return sides | {"U4/term": (large, small, {"of c3 at G = 2": small, "of c3 at G = 64": large})}


@rows(cases=CASES)
def optima(problem):
    """The minimiser over the reals by each reading, beside the enumerated one."""
    found = sizes(problem)
    for name in READINGS:
        best, _, facts = found[f"U9/best/{name}"]
        yield {"quantity": name, "optimum": facts["over real G"], "estimate": best}
