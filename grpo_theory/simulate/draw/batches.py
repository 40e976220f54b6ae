"""Batches that a fixed policy drew, some at a time, and what a thread keeps to work on them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler.lanes import zeros
from grpo_theory.simulate.draw.counting import Counts, fill_counts, make_counting_room, make_counts
from grpo_theory.simulate.draw.order import fill_ordered
from grpo_theory.simulate.draw.outcome_law import OutcomeLaw
from grpo_theory.simulate.draw.sheet import make_sheet
from grpo_theory.simulate.draw.streams import LANES, begin_streams, make_streams


class Buffers:
    """The arrays that one thread uses again, for one set of batches after another and block after block.

    Estimators of one kind share their arrays, because the covectors of one are used before the next one begins.  But each kernel
    that is called has its own arrays for what it is shown.
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
class Batches:
    """Some tiles of 128 batches.

    Attributes
    ----------
    counts : Counts
    ordered : ndarray of uint16, shape (S, B, G, LANES), or None
        The outcomes in the order drawn, if any estimator asks for it.
    """

    counts: Counts
    ordered: NDArray[np.uint16] | None


def make_batches(law: OutcomeLaw, n_tiles: int, batch_size: int, *, in_order: bool) -> Batches:
    """Make room for batches that are drawn from a law."""
    counts = make_counts(n_tiles, batch_size, law.fine.shape[1])
    ordered = zeros(n_tiles, batch_size, law.group_size, LANES, dtype=np.uint16) if in_order else None
    return Batches(counts, ordered)


class BatchStream:
    """The batches of one block after another, some at a time: nothing that is in it before a block begins is read."""

    def __init__(self, law: OutcomeLaw) -> None:
        self.law, self.streams, self.sheet = law, make_streams(), make_sheet(law)
        self.room = make_counting_room(law, self.sheet)
        self.first = 0

    def begin(self, words: NDArray[np.uint64], block: int) -> None:
        """Begin a block, from the words of `stream_words`."""
        begin_streams(words, block, self.streams)
        self.first = 0

    def fill(self, counts: Counts) -> None:
        """Draw the next batches as counts."""
        fill_counts.run(self.streams, self.law, self.sheet, self.room, self.first, counts)
        self._pass_on(counts)

    def fill_ordered(self, counts: Counts, outcomes: np.ndarray) -> None:
        """Draw the next batches as outcomes in the order drawn."""
        fill_ordered.run(self.streams, self.law, self.sheet, self.room, self.first, counts.prompts, outcomes)
        self._pass_on(counts)

    def _pass_on(self, counts: Counts) -> None:
        n_tiles, batch_size, _ = counts.prompts.shape
        self.first += n_tiles * batch_size
