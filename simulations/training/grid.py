"""Group sizes on a grid."""

import numpy as np


def on_grid(real: float, sizes: np.ndarray) -> int:
    """Return the group size of the grid nearest to a real one, in ratio."""
    return int(sizes[np.argmin(np.abs(np.log(np.minimum(real, 2.0 * sizes.max()) / sizes)))])
