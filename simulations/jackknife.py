"""The jackknife: how far an estimate moves when each of its units is left out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from grpo_theory.validation import Array


def jackknife_error(without: Array) -> Any:
    """Return the standard error (...) of an estimate, from what it is without each of n independent units, shape (n, ...)."""
    return np.sqrt(len(without) - 1.0) * without.std(axis=0)


def weighted_error(statistic: Callable[[Array], float], units: int) -> float:
    """Return the standard error of a function of the units' weights (units,), which sum to 1: all units weigh alike."""
    without = (np.eye(units) != 1.0) / (units - 1.0)
    return float(jackknife_error(np.array([statistic(weights) for weights in without])))
