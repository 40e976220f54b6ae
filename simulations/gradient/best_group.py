"""U9, U4: the whole group size of least error, by enumeration.

The paper's c3/(BG^2) is part of a bound, and as a bound it holds (U4/printed). The paper offers its minimiser as the best group
size, so here it is compared with the group size that has the least error.

In one control c3 is four times too large, which asks for twice as many responses per prompt. In the control of the third term c2
is 5% too large, as an error estimated from 400 groups would make it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.statements import stated

U9, PRINTED, REMAINDER, CORRECTED, TERM = stated("U9", "U9/best/printed", "U9/best/remainder", "U9/best/corrected", "U4/term")

READINGS = {"printed": PRINTED, "remainder": REMAINDER, "corrected": CORRECTED}
"""The third term is c3/(BG^2); the same with E||W||^2 for c3; or c3/(BG(G-1))."""
WRONG_C3, WRONG_C2 = 4.0, 1.05
ENDS = (2, 64)
LARGEST = 4096


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem whose prompts differ (if they do not, no group is too large); exact, so quick is no different."""
    names = [name for name in gt.gallery.names("gradient") if gt.gallery.problem(name).bandit.n_prompts > 1]
    return [Cell({"problem": name}) for name in names]


def first_rise(cost: Callable[[int], float]) -> int:
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


def minimisers(c1: float, c3: float, power: float) -> dict[str, int]:
    """Return the whole group size of least error by each reading of the law, with power = E||W||^2."""
    laws: dict[str, Callable[[int], float]] = {
        "printed": lambda size: c1 * size + c3 / size,
        "remainder": lambda size: c1 * size + power / size,
        "corrected": lambda size: c1 * size + c3 / (size - 1),
    }
    return {name: first_rise(cost) for name, cost in laws.items()}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield each reading's whole minimiser beside the enumerated one, and whether the third term is one constant at both ends."""
    problem = gt.gallery.problem(settings["problem"])
    law, moments = gt.group_size_law(problem, problem.theta), gt.moments(problem, problem.theta)
    power = float(moments.prompt_weights @ moments.score_power)

    def enumerated(size: int) -> float:
        """The error of leave-one-out at B = 1."""
        return gt.gradient_mse(problem, problem.theta, "rloo", batch_size=1, group_size=size)

    best = first_rise(lambda size: size * enumerated(size))
    right, wrong = (minimisers(law.c1, factor * law.c3, factor * power) for factor in (1.0, WRONG_C3))
    exactly = {"printed": law.paper_optimum, "remainder": float(np.sqrt(power / law.c1)), "corrected": law.optimum}
    for name, statement in READINGS.items():
        facts = {"over real G": exactly[name]}
        yield statement.compare(problem.name, best, right[name], broken=best, broken_prediction=wrong[name], facts=facts)
        yield {"problem": problem.name, "quantity": name, "optimum": exactly[name], "estimate": best}
    (small, large), (broken, other) = (
        [size**2 * (enumerated(size) - law.c1 - factor * law.c2 / size) / law.c3 for size in ENDS] for factor in (1.0, WRONG_C2)
    )
    facts = {f"of c3 at G = {size}": third for size, third in zip(ENDS, (small, large), strict=True)}
    yield TERM.compare(problem.name, large, small, broken=other, broken_prediction=broken, facts=facts)
