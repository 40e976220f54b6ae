"""Estimates whose errors have several independent parts: draws of a kind of problem, runs, and logs."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import average


class Part(NamedTuple):
    """The variance that something independent adds to an estimate, and its degrees of freedom: infinite if it is known."""

    variance: float
    free: float = np.inf


def pooled(parts: Iterable[Part]) -> Part:
    """Return what independent parts add together: their degrees of freedom are Satterthwaite's (1946), or all if none varies."""
    listed = list(parts)
    whole = sum(part.variance for part in listed)
    squares = sum(part.variance**2 / part.free for part in listed)
    return Part(whole, whole**2 / squares if squares else sum(part.free for part in listed))


def summary_of(estimate: float, parts: Iterable[Part]) -> dict[str, float]:
    """Return the columns of an estimate with the error of its parts together.

    Parameters
    ----------
    estimate : float
    parts : iterable of Part
        At least one with a variance and finite degrees of freedom.
    """
    found = pooled(part for part in parts if part.variance > 0.0)
    if not (found.variance and np.isfinite(found.free)):
        raise ValueError("parts must have a variance that runs or logs have shown; without one there is no standard error")
    return {"estimate": estimate, "standard_error": float(np.sqrt(found.variance)), "replications": max(2, int(found.free) + 1)}


def mean_over_kinds(rows: pd.DataFrame, prediction: float, logs: Part | None = None) -> Evidence:
    """Return the evidence of the mean of rows, one for each kind of problem, which are independent; logs may be common to all."""
    mean = average(rows["estimate"])
    parts = [Part(row.standard_error**2 / len(rows) ** 2, row.replications - 1.0) for row in rows.itertuples()]
    together = pooled(part for part in [*parts, logs] if part is not None)
    error, free = float(np.sqrt(together.variance)), max(2, int(together.free) + 1)
    return Evidence(mean, prediction, error, replications=free)
