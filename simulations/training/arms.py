"""Arms of a comparison, each at its own best step: how the step is chosen, how arms are compared, and the facts about them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.harness.step_search import best_step


def chosen_step(steps: Array, losses: Array) -> dict[str, Any]:
    """Return the best step of an arm, and whether the least loss is inside the grid, not at one of its ends."""
    return {"step": best_step(steps, losses), "interior": bool(0 < losses.argmin() < len(steps) - 1)}


def paired(one: Sequence[Any] | Array, other: Sequence[Any] | Array) -> Array:
    """Return the differences of the runs, or of the problems, that two arms both have; they are of the same draws one by one."""
    both = min(len(one), len(other))
    return np.array(one[:both]) - np.array(other[:both])


def facts_of(arms: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, float]:
    """Return the facts about some arms, whose rows are labelled by their names, from the columns that hold them."""
    return {f"{fact}, {arm}": float(value) for fact, column in columns.items() for arm, value in arms[column].items()}
