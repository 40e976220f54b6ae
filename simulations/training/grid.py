"""Grids of group sizes and of checkpoints."""

import numpy as np

HALF_DOUBLING = 2.0**0.5
"""How much more a choice may lose than the best one and still pass for as good. It is half the way to the next budget, twice as
large."""


def on_grid(real: float, sizes: np.ndarray) -> int:
    """Return the group size of the grid nearest to a real one, in ratio."""
    return int(sizes[np.argmin(np.abs(np.log(np.minimum(real, 2.0 * sizes.max()) / sizes)))])


def doubling(steps: int) -> list[int]:
    """Return the checkpoints 1, 2, 4, ... up to a number of steps."""
    return [1 << power for power in range(steps.bit_length())]
