"""The array types that signatures name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = Any
"""A float, or an array of floats where many are asked for at once."""
