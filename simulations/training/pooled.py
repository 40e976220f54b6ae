"""Moments of runs that are computed chunk by chunk, and the mean and its covariance that they make together."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array


def sums_of(values: Array) -> dict[str, Any]:
    """Return the number of runs, the sums (C,) and the sums of products (C, C) of values (runs, C)."""
    return {"runs": len(values), "sum": values.sum(axis=0).tolist(), "products": (values.T @ values).tolist()}


class Pooled(NamedTuple):
    """The mean (C,) of some values over runs, the covariance (C, C) of that mean, and the number of runs."""

    mean: Array
    covariance: Array
    runs: int

    @property
    def columns(self) -> pd.DataFrame:
        """The means with their standard errors, as columns of a table."""
        # A value that is the same in all runs has a variance of 0, which rounding can make negative.
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return pd.DataFrame({"estimate": self.mean, "standard_error": errors, "replications": self.runs})


def pooled(chunks: Sequence[Mapping[str, Any]]) -> Pooled:
    """Return what the sums of all chunks make together."""
    runs = sum(chunk["runs"] for chunk in chunks)
    mean, products = (np.sum([chunk[name] for chunk in chunks], axis=0) / runs for name in ("sum", "products"))
    return Pooled(mean, (products - np.outer(mean, mean)) / (runs - 1), runs)


def slope_of(n: Array, values: Pooled) -> dict[str, float]:
    """Return the slope of log mean on log n by least squares, with its standard error by the delta method."""
    centred = np.log(n) - np.log(n).mean()
    weights = centred / (centred @ centred)
    influence = weights / values.mean
    error = float(np.sqrt(influence @ values.covariance @ influence))
    return {"estimate": float(weights @ np.log(values.mean)), "standard_error": error, "replications": values.runs}
