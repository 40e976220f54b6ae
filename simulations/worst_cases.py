"""The worst case of a statement: of what is drawn at random, of what a search finds, and of something broken.

The column `how` of such a table says which of them a row is: "random", "sought" or "broken".
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Evidence, Statement
from grpo_theory.evidence.inequality import WorstCase
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import Settings

Box = Sequence[tuple[float, float]]
"""The lowest and the highest value of each parameter."""


def worst_row(statement: Statement, how: str, values: ArrayLike, prediction: float = 1.0) -> dict[str, Any]:
    """Return the row of the largest of some values: by default left over right sides of a bound, which are at most 1."""
    return {"statement": statement.id, "how": how, "estimate": largest(values), "prediction": prediction}


def ratios(sides: Iterable[tuple[float, float]]) -> list[float]:
    """Return left over right sides."""
    return [left / right for left, right in sides]


def sought(
    sides: Callable[[Array], tuple[float, float]],
    box: Box,
    settings: Settings,
    rng: np.random.Generator | np.random.SeedSequence,
    compare: Literal["ratio", "difference"] = "ratio",
) -> WorstCase:
    """Return the worst case in a box of parameters, by a search with as many starts and climbs as the settings say."""
    return gt.worst_case(sides, box, rng=rng, starts=settings["starts"], climbs=settings["climbs"], compare=compare)


def worst_of(
    drawn: Iterable[tuple[float, float]],
    sides: Callable[[Array], tuple[float, float]],
    box: Box,
    rng: np.random.Generator,
    starts: int,
    climbs: int,
    bound: float = 1.0,
) -> tuple[float, float, dict[str, float]]:
    """Return the sides of a check of a bound, and as facts the worst of what was drawn and of what was sought.

    Parameters
    ----------
    drawn : iterable of (float, float)
        The two sides of random cases.
    sides, box
        Those in a box of parameters, in which a search goes. Without starts there is none.
    bound : float, default 1.0
        The right side, of which the worst ratio is taken.
    """
    worst = {"random": bound * largest(ratios(drawn))}
    if starts:
        worst["sought"] = bound * gt.worst_case(sides, box, rng=rng, starts=starts, climbs=climbs).score
    return max(worst.values()), bound, worst


def by_the_worst(part: pd.DataFrame) -> tuple[Evidence, Evidence, dict[str, float]]:
    """Return what `Statement.claim` asks for: the evidence of the worst, that of the broken one, and the facts, each worst."""
    worst = part.groupby("how", sort=False)["estimate"].agg(largest).to_dict()
    prediction = float(part["prediction"].iloc[0])
    control = exact(worst.pop("broken"), prediction)
    return exact(largest(list(worst.values())), prediction), control, worst
