"""Limits of what few seeds of a training run say."""

from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from grpo_theory.arrays import Array
from simulations.jackknife import jackknife_error


def with_limits(row: dict[str, float]) -> dict[str, float]:
    """Return a summary of seeds with its 95% limits by Student's t; the same whole seeds serve both estimators."""
    half = float(stdtrit(row["replications"] - 1, 0.975)) * row["standard_error"]
    return row | {"low": row["estimate"] - half, "high": row["estimate"] + half}


def jackknife(without: Callable[[int | None], Array], seeds: int) -> dict[str, Array]:
    """Return estimates, their standard errors over seeds, and the number of seeds, by leaving each seed out in turn.

    ``without(seed)`` gives the estimates of all seeds but one, or of all if it is None, each made anew with its choices of
    learning rates. Where each seed's rate is chosen by the others, seeds depend on each other. With four equal rates, 95% limits
    from the deviation of five seeds hold in 87% of the cases, and those of ten seeds in 81%. The limits here hold in 96% and 95%.
    """
    found = np.asarray(without(None))
    return {
        "estimate": found,
        "standard_error": jackknife_error(np.array([without(seed) for seed in range(seeds)])),
        "replications": np.full(found.shape, seeds),
    }
