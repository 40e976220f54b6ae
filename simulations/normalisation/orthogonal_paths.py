"""Means over the paths of prompts that do not move each other: sums over how often a prompt has been drawn."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from simulations.normalisation.ascent import Prompts, Step
from simulations.normalisation.prompts import prompts


class Path(NamedTuple):
    """Means over paths of what a prompt is before each of T updates, and after the last."""

    success: Array
    deviation: Array
    square: Array
    norm: Array
    weighted: Array


def own_path(rate: float, step: Step, count: int, stops: bool = False) -> Path:
    """Return a prompt's state after 0, 1, ... steps on it; in the control it stops learning once it is right half of the time."""
    alone = Prompts.of(prompts(0.0, [rate]))
    theta, states, only = alone.theta[None], [], np.zeros(1, dtype=np.int64)
    for _ in range(count):
        state = alone.at(theta)
        success, deviation, square = state.success[0, 0], np.sqrt(state.variance[0, 0]), state.squares[0, 0]
        states.append((success, deviation, square, np.sqrt(square), square / deviation))
        if not (stops and success >= 0.5):
            theta = alone.step(theta, state, only, step)
    return Path(*np.array(states).T)


def counts_law(horizon: int, n: int) -> Array:
    """Return P(a prompt has been drawn k times in t updates), t = 0 to the horizon, k up to where 1e-16 is left."""
    from scipy.stats import binom  # slow to import, and seldom wanted

    most = int(binom.isf(1e-16, horizon, 1.0 / n)) + 1
    return np.asarray(binom.pmf(np.arange(most + 1), np.arange(horizon + 1)[:, None], 1.0 / n))


def mean_over_rates(paths: dict[float, Path]) -> Path:
    """Return the mean over prompts, equally many of each success rate at the start."""
    return Path(*np.mean([list(path) for path in paths.values()], axis=0))
