"""Long vectors made short so that inner products stay right on average (docs/derivations.md, section 36)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.jit import kernel
from grpo_theory.validation import Array, as_array, as_count, shown

SIGNS = 32
"""So many coordinates have their signs from one word: the bits of its upper half, which are the better mixed."""
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def splitmix(key, number):
    """Return one output of SplitMix64 (Steele, Lea and Flood 2014): that of this number, from 0, after the seed `key`."""
    word = key + (number + np.uint64(1)) * GOLDEN
    word = (word ^ (word >> np.uint64(30))) * FIRST
    word = (word ^ (word >> np.uint64(27))) * SECOND
    return word ^ (word >> np.uint64(31))


@kernel
def add_signed(vector, first, keys, sums):
    """Add a vector's chunks, with random signs and each shifted by a random offset, to sums (blocks, 2 m) that do not wrap round.

    A chunk of m coordinates uses m/32 + 1 words of each block's stream. Its offset comes from the first word, and its signs are
    the bits of the others. `first` is the number of the first chunk.
    """
    size, width = vector.size, sums.shape[1] // 2
    words = width // SIGNS
    for chunk in range((size + width - 1) // width):
        number = (first + np.uint64(chunk)) * np.uint64(words + 1)
        for block in range(keys.size):
            shift = np.int64(splitmix(keys[block], number) % np.uint64(width))
            for j in range(words):
                bits = np.int64(splitmix(keys[block], number + np.uint64(j + 1)) >> np.uint64(32))
                start, offset = chunk * width + j * SIGNS, shift + j * SIGNS
                part, out = vector[start : start + SIGNS], sums[block, offset : offset + SIGNS]
                # Sums have twice the width, so that no index has to be wrapped; the halves are added up in the end.
                for i in range(part.size):
                    out[i] += np.float32(1 - 2 * ((bits >> i) & 1)) * part[i]


class CountSketch:
    """A random linear map to `width` numbers under which inner products keep their value on average.

    A vector is cut into chunks of m = width/blocks coordinates. In each of the blocks, independently, every coordinate gets a
    random sign and every chunk is rotated by a random offset. The chunks are then added up. This is a count sketch (Charikar,
    Chen and Farach-Colton 2002) whose buckets differ within a chunk. The inner product of the sketches of x and y is unbiased for
    x . y. Its variance is at most (||x||^2 ||y||^2 + (x . y)^2)/width.

    Parameters
    ----------
    width : int
        A multiple of 32 blocks.
    blocks : int
        Each block by itself, times the square root of their number, is such a sketch; their spread measures the error.
    seed : int

    Examples
    --------
    >>> from grpo_theory.language_model import CountSketch
    >>> sketch = CountSketch(width=1024, blocks=4, seed=7)
    >>> sketch.width, sketch.blocks
    (1024, 4)
    """

    def __init__(self, width: int = 1024, blocks: int = 8, seed: int = 0) -> None:
        self.blocks = as_count("blocks", blocks)
        self.width = as_count("width", width)
        if self.width % (SIGNS * self.blocks):
            raise ValueError(f"width must be a multiple of {SIGNS} numbers for each of the {self.blocks} blocks, got {width}")
        self.seed = as_count("seed", seed, 0)
        self.keys = np.random.SeedSequence(self.seed).generate_state(self.blocks, np.uint64)

    def __call__(self, pieces: Iterable[ArrayLike]) -> Array:
        """Return the sketch (width,) of one vector that comes in pieces, in single precision; each begins a chunk of its own."""
        if not isinstance(pieces, Iterable) or (isinstance(pieces, np.ndarray) and pieces.ndim == 0):
            raise TypeError(f"pieces must be arrays of real numbers, got {shown(pieces)}")
        m, chunk = self.width // self.blocks, 0
        sums = np.zeros((self.blocks, 2 * m))
        for piece in pieces:
            try:
                if np.iscomplexobj(piece) or getattr(piece, "dtype", np.dtype(float)).kind in "mM":
                    raise TypeError("complex numbers, dates and times")
                with np.errstate(over="ignore"):  # what is too large for single precision becomes infinite
                    vector = np.ascontiguousarray(as_array("pieces", piece), dtype=np.float32).reshape(-1)
            except (TypeError, ValueError) as error:
                raise TypeError(f"pieces must be arrays of real numbers, got {shown(piece)}: {error}") from None
            add_signed(vector, np.uint64(chunk), self.keys, sums)
            chunk += -(-vector.size // m)
        if not np.isfinite(sums).all():
            raise ValueError("pieces must be finite in single precision, and are not")
        return ((sums[:, :m] + sums[:, m:]) / np.sqrt(self.blocks)).reshape(-1)
