"""Arms of a comparison, on the same draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from grpo_theory.arrays import Array


def paired(one: Sequence[Any] | Array, other: Sequence[Any] | Array) -> Array:
    """Return the differences of the runs, or of the problems, that two arms both have; they are of the same draws one by one."""
    both = min(len(one), len(other))
    return np.array(one[:both]) - np.array(other[:both])
