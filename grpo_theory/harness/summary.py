"""A sample of independent replications as the columns of a row."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.harness.study import EXACT


def summary(sample: Array) -> dict[str, float]:
    """Return the mean of a sample (R,), its standard error and R; a single value is one that was computed exactly."""
    if len(sample) == 1:
        return {"estimate": float(sample[0]), **EXACT}
    error = float(sample.std(ddof=1) / np.sqrt(len(sample)))
    return {"estimate": float(sample.mean()), "standard_error": error, "replications": len(sample)}
