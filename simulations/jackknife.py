"""The jackknife: how far an estimate moves when each of its units is left out."""

from typing import Any

import numpy as np

from grpo_theory.validation import Array


def jackknife_error(without: Array) -> Any:
    """Return the standard error (...) of an estimate, from what it is without each of n independent units, shape (n, ...)."""
    return np.sqrt(len(without) - 1.0) * without.std(axis=0)
