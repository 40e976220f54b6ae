"""U9: the best group size by Theorem 7's bound itself, its constants suprema over a region, exactly.

Lemma 6's bounds with M, the largest error of the leave-one-out estimator over a ball around a maximiser, are minimised over the
whole group sizes at fixed budgets: BG responses a step, or nBG in all.  The printed minimiser is sqrt(C3/C1) with C1 and C3 the
suprema of c1 and c3; it takes the supremum of the error for the sum of its parts' suprema, and c3/(BG^2) for c3/(BG(G-1)).
"""

from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, farthest
from grpo_theory.evidence.reading import largest as largest_of
from grpo_theory.exact import Region, region
from grpo_theory.exact.ball import ERROR_POINTS, largest, net, one_by_one
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import constant_step_bound, harmonic_step_bound
from simulations.claims import claim, unconverted
from simulations.maximum import curvatures, maximum
from simulations.training.grid import doubling

BALLS = (("conflict", 1.0), ("conflict", 2.0), ("kl-linear", 0.3), ("kl-linear", 1.0), ("kl-linear", 2.0), ("kl-tabular", 1.0))
QUICK_BALLS = 1
GROUP_SIZES = tuple(range(2, 13))
READINGS = ("printed", "corrected")
WRONG_C3 = 4.0
"""The control's supremum of c3 is so many times too large: it asks for twice the responses a prompt."""
STEP_BUDGETS, NUMBERS = (1024, 16384), (64, 1024)
RUN_BUDGETS, CONTROL_BUDGETS = (1 << 18, 1 << 24), (1 << 10, 1 << 24)


def cells(quick: bool) -> list[Cell]:
    """One cell for each ball; quick takes the first."""
    balls = BALLS[:QUICK_BALLS] if quick else BALLS
    return [Cell({"problem": problem, "radius": radius, "group_sizes": list(GROUP_SIZES)}) for problem, radius in balls]


def suprema(name: str, radius: float) -> tuple[Array, Array]:
    """Return the suprema of c1, c2 and c3 over the ball, and those of B MSE at every group size."""
    problem, best, _ = maximum(name)
    directions = curvatures(name)[1]

    @cache
    def law_at(point: bytes) -> gt.GroupSizeLaw:
        return gt.group_size_law(problem, best + directions @ np.frombuffer(point))

    points = net(directions.shape[1], radius, ERROR_POINTS)

    def constant(name: str, point: Array) -> float:
        return float(getattr(law_at(point.tobytes()), name))

    def error(size: int, point: Array) -> float:
        return float(law_at(point.tobytes()).mse(1, size))

    constants = [largest(one_by_one(partial(constant, name)), points, radius) for name in ("c1", "c2", "c3")]
    errors = [largest(one_by_one(partial(error, size)), points, radius) for size in GROUP_SIZES]
    return np.array(constants), np.array(errors)


def bounds(found: Region, errors: Array) -> dict[str, Array]:
    """Return Lemma 6's bounds with every group size in every setting, and with one prompt a step, shape (G,) each."""
    sizes, step, beta = np.array(GROUP_SIZES), 0.02 / found.smoothness, 1.0 / found.pl

    def constant(noise: float, n: int) -> float:
        return float(constant_step_bound(found, noise, step, found.highest_gap, n))

    def harmonic(noise: float, n: int) -> float:
        return float(harmonic_step_bound(found, noise, beta, n))

    table = {
        f"beta, BG = {budget}, n = {n}": [constant(g * error / budget, n) for g, error in zip(sizes, errors, strict=True)]
        for budget, n in zip(STEP_BUDGETS, NUMBERS, strict=True)
    }
    for budget in RUN_BUDGETS:
        counts = doubling(budget // GROUP_SIZES[-1])
        for name, bound in (("beta", constant), ("beta/i", harmonic)):
            table[f"{name}, nBG = {budget}"] = [
                min(bound(n * g * error / budget, n) for n in counts) for g, error in zip(sizes, errors, strict=True)
            ]
    for budget in CONTROL_BUDGETS:
        table[f"B = 1, nBG = {budget}"] = [constant(error, budget // g) for g, error in zip(sizes, errors, strict=True)]
    return {name: np.array(values) for name, values in table.items()}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Minimise the bounds and the two readings of the law over whole group sizes; exact, but for the search over the ball."""
    problem, best, _ = maximum(settings["problem"])
    (c1, c2, c3), errors = suprema(settings["problem"], settings["radius"])
    found = region(problem, best, radius=settings["radius"], reach=1e-6)
    sizes = np.array(GROUP_SIZES, dtype=np.float64)
    laws = {
        "printed": lambda c3: c1 * sizes + c3 / sizes,
        "corrected": lambda c3: c1 * sizes + c3 / (sizes - 1.0),
    }
    return {
        "least": {name: int(sizes[np.argmin(values)]) for name, values in bounds(found, errors).items()},
        "laws": {name: [int(sizes[np.argmin(law(factor * c3))]) for factor in (1.0, WRONG_C3)] for name, law in laws.items()},
        "C1": c1,
        "C2": c2,
        "C3": c3,
        "largest_share": float((errors / (c1 + c2 / sizes + c3 / (sizes * (sizes - 1.0)))).min()),
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each setting and reading: the whole group size of the least bound, and that of the law."""
    (found,) = results
    common = {"problem": settings["problem"], "radius": settings["radius"], **EXACT}
    common |= {name: found[name] for name in ("C1", "C2", "C3", "largest_share")}
    return [
        common | {"setting": setting, "reading": reading, "estimate": size, "prediction": own, "wrong": wrong}
        for setting, size in found["least"].items()
        for reading, (own, wrong) in found["laws"].items()
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge both readings in every setting, and whether the settings share a group size.

    The control of the last has one prompt a step, so that larger groups mean fewer steps.
    """
    found = []
    for (problem, radius), part in table.groupby(["problem", "radius"], sort=False):
        where, row = f"{problem}, radius {radius:g}", part.iloc[0]
        ratio = float(np.sqrt(row["C3"] / row["C1"]))
        facts = {"sqrt(C3/C1)": ratio, "largest error / sum of the suprema": row["largest_share"]}
        single = part["setting"].str.startswith("B = 1")
        for reading in READINGS:
            own = part[~single & (part["reading"] == reading)]
            at = own.loc[farthest(own["estimate"] - own["prediction"])]
            both = (exact(at["estimate"], at[law]) for law in ("prediction", "wrong"))
            found.append(claim(f"U9/bound/{reading}", where, *both, facts=facts))
        both = (exact(largest_of(part[which]["estimate"]), -largest_of(-part[which]["estimate"])) for which in (~single, single))
        found.append(claim("U9/bound/universal", where, *both, facts={"settings": float((~single).sum() / len(READINGS))}))
    return found


STUDY = unconverted(
    "theorem_7",
    "U9: the best group size by Theorem 7's bound, its constants suprema over a region",
    cells,
    compute,
    rows,
    claims,
    ("U9/bound/printed", "U9/bound/corrected", "U9/bound/universal"),
)
