"""Some strips of batches as they were drawn, and what a thread keeps to work on one panel after another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler.lanes import zeros
from grpo_theory.simulate.draw.counting import Counts


class Scratch:
    """What one thread uses again, panel after panel and block after block.

    Routes of one kind share what they work in, because the parts of one are used before the next one begins; but each kernel that
    is called has room of its own for what it is shown.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple, Any] = {}

    def array(self, name: str, *shape: int, dtype: type = np.float64) -> np.ndarray:
        """Return the array of this name and shape, with whatever it has in it."""
        return self.made(name, zeros, *shape, dtype=dtype)

    def made(self, name: str, make: Callable, *arguments: Any, **options: Any) -> Any:
        """Return what was made under this name of these arguments."""
        key = name, *arguments
        if key not in self._kept:
            self._kept[key] = make(*arguments, **options)
        return self._kept[key]


@dataclass(frozen=True, eq=False)
class Panel:
    """Some strips of batches.

    Attributes
    ----------
    counts : Counts
    ordered : ndarray of uint16, shape (S, B, G, LANES), or None
        The outcomes in the order drawn, if any estimator asks for it.
    """

    counts: Counts
    ordered: NDArray[np.uint16] | None
