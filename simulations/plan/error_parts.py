"""Estimates whose errors have several independent parts: runs, choices of a learning rate, logs; and choices that runs make."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers


class Part(NamedTuple):
    """The variance that something independent adds to an estimate, and its degrees of freedom: infinite if it is known."""

    variance: float
    free: float = np.inf


def of_runs(sample: Array) -> Part:
    """Return what runs (R,) add to their mean."""
    return Part(float(sample.var(ddof=1)) / len(sample), len(sample) - 1.0)


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


def best_by_others(samples: Array, folds: int, without: int | None = None) -> Integers:
    """Return, for each share of runs, the column of samples (R, S) with the highest mean over the other shares, (folds,).

    So no run judges a column that it chose. `without` is a column that is left out.
    """
    allowed = np.array([column != without for column in range(samples.shape[1])])
    found = []
    for share in np.array_split(np.arange(len(samples)), folds):
        means = np.delete(samples, share, axis=0).mean(axis=0)
        found.append(np.where(allowed, means, -np.inf).argmax())
    return np.array(found)


def along(samples: Array, columns: Integers) -> Array:
    """Return the values (R,) of samples (R, S) at the column of each share of runs, (folds,)."""
    shares = np.array_split(samples, len(columns))
    return np.concatenate([share[:, column] for share, column in zip(shares, columns, strict=True)])
