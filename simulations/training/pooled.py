"""Moments of runs that are computed chunk by chunk, and the mean and its covariance that they make together."""

from typing import Any

import numpy as np


def sums_of(values: np.ndarray) -> dict[str, Any]:
    """Return the sums (C,) and the sums of products (C, C) of values (runs, C)."""
    return {"sum": values.sum(axis=0).tolist(), "products": (values.T @ values).tolist()}


def mean_and_covariance(results: list[Any], name: str, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (C,) of what chunks kept moments of, and the covariance (C, C) of that mean."""
    mean = np.sum([result[name]["sum"] for result in results], axis=0) / runs
    products = np.sum([result[name]["products"] for result in results], axis=0) / runs
    return mean, (products - np.outer(mean, mean)) / (runs - 1)


def slope_of(n: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> dict[str, float]:
    """Return the slope of log mean on log n by least squares, with its standard error by the delta method."""
    centred = np.log(n) - np.log(n).mean()
    weights = centred / (centred @ centred)
    influence = weights / mean
    return {"estimate": float(weights @ np.log(mean)), "standard_error": float(np.sqrt(influence @ covariance @ influence))}
