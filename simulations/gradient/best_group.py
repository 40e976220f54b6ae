"""U9 and U4: which whole group size has the least error at a fixed budget, by enumeration, and which law knows it.

The paper's c3/(BG^2) stands in a bound, and as a bound it holds (U4/printed).  Its minimiser is offered as the best group size,
so here it is compared with the group size that has the least error.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted

READINGS = ("printed", "remainder", "corrected")
"""c3/(BG^2) as printed; the same with E||W||^2 for c3, as Proposition 3 prints its remainder; c3/(BG(G-1))."""
WRONG_C3 = 4.0
"""The controls of the minimisers have a c3 so many times too large: it asks for twice the responses a prompt."""
WRONG_C2 = 1.05
"""The control of the third term has a c2 that is 5% too large, as an error estimated from 400 groups would have it."""
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


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Enumerate N times the error, group size by group size, and minimise the laws; the same with wrong constants."""
    problem = gt.gallery.problem(settings["problem"])
    law, moments = gt.group_size_law(problem, problem.theta), gt.moments(problem, problem.theta)
    power = float(moments.prompt_weights @ moments.score_power)

    def enumerated(size: int) -> float:
        """The error of leave-one-out at B = 1."""
        return gt.gradient_mse(problem, problem.theta, "rloo", batch_size=1, group_size=size)

    best = first_rise(lambda size: size * enumerated(size))
    right, wrong = (minimisers(law.c1, factor * law.c3, factor * power) for factor in (1.0, WRONG_C3))
    exactly = {"printed": law.paper_optimum, "remainder": float(np.sqrt(power / law.c1)), "corrected": law.optimum}
    found = [
        {"quantity": name, "estimate": best, "prediction": right[name], "wrong": wrong[name], "optimum": exactly[name]}
        for name in READINGS
    ]
    thirds, wrongs = (
        [size**2 * (enumerated(size) - law.c1 - factor * law.c2 / size) / law.c3 for size in ENDS] for factor in (1.0, WRONG_C2)
    )
    third = {"quantity": "third term", "estimate": thirds[1], "prediction": thirds[0], "wrong": wrongs[0]}
    return [*found, third | {"wrong_estimate": wrongs[1]}]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each reading of the law, and one for the third term; `optimum` is the minimiser over real group sizes."""
    common = {"problem": settings["problem"], **EXACT}
    return [common | row for row in results[0]]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge each reading by its whole minimiser, and the third term by whether it is one constant at both ends."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        at = part.set_index("quantity")
        for name in READINGS:
            row = at.loc[name]
            own, wrong = (exact(row["estimate"], row[prediction]) for prediction in ("prediction", "wrong"))
            found.append(claim(f"U9/best/{name}", str(problem), own, wrong, facts={"over real G": row["optimum"]}))
        row = at.loc["third term"]
        own, wrong = exact(row["estimate"], row["prediction"]), exact(row["wrong_estimate"], row["wrong"])
        facts = {f"of c3 at G = {size}": row[name] for size, name in zip(ENDS, ("prediction", "estimate"), strict=True)}
        found.append(claim("U4/term", str(problem), own, wrong, facts=facts))
    return found


STUDY = unconverted(
    "best_group",
    "U9, U4: the whole group size of least error, by enumeration",
    cells,
    compute,
    rows,
    claims,
    (*(f"U9/best/{name}" for name in READINGS), "U4/term"),
)
