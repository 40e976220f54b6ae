"""The distance of a large sample from a law whose distribution function is slow."""

from typing import Any

import numpy as np

from grpo_theory.theory.distance import law_distance

TAIL = 0.05


def kolmogorov_distance(sample: np.ndarray, cdf: Any) -> float:
    """Return the largest distance between the sample's distribution function and a law's."""
    return law_distance(lambda ordered: np.interp(ordered, *_tabulated(cdf, ordered)), sample).estimate


def _tabulated(cdf: Any, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate a distribution function on the sample's own quantiles, in the tails in equal ratios: errors are below 1e-4."""
    tail = np.geomspace(TAIL, 1.0 / len(ordered), 60)
    levels = np.concatenate([np.linspace(0.0, 1.0, 501), tail, 1.0 - tail])
    points = np.unique(np.quantile(ordered, levels))
    return points, np.asarray(cdf(points))
