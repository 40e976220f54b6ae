"""The best of several step sizes, so that no arm of a comparison wins by its step."""

import numpy as np

from grpo_theory.arrays import Array


def best_step(steps: Array, losses: Array) -> float:
    """Return the step of least loss: the vertex of the parabola in log step through the least loss and its neighbours.

    The losses are smoothed with weights 1/4, 1/2, 1/4 before the least is sought, so that no lucky loss wins.  The step lies
    between the first and the last.
    """
    smooth = losses[:-2] / 4.0 + losses[1:-1] / 2.0 + losses[2:] / 4.0
    at = slice(int(smooth.argmin()), int(smooth.argmin()) + 3)
    low, middle, high = np.log(steps[at])
    bend, slope, _ = np.polyfit(np.log(steps[at]) - middle, losses[at], 2)
    vertex = middle - slope / (2.0 * bend) if bend > 0.0 else middle
    return float(np.exp(np.clip(vertex, low, high)))
