"""SFC64 in 128 lanes: one random stream for each of the runs, or replications, that lie side by side.

SFC64 (Doty-Humphrey, PractRand) has three words of state and a counter, and needs additions, shifts and exclusive ors alone;
so the lanes of one loop are worked on together.  A lane is bit for bit numpy's SFC64 from the same state.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compilation import function_value, record_type, stage

LANES = 128
WARM_UP = 24
"""Rounds after which states that began one apart have nothing in common; numpy makes 12, from seeds that are already mixed."""


class Streams(NamedTuple):
    """The streams of one block, in the middle of their way.

    Attributes
    ----------
    lanes : ndarray of uint64, shape (4, 128)
        Three words of state and the counter, one column for each lane.
    lone : ndarray of uint64, shape (4,)
        Of a stream that the lanes share, for what is drawn seldom.
    """

    lanes: NDArray[np.uint64]
    lone: NDArray[np.uint64]


STREAMS = record_type(Streams, numba.uint64[:, ::1], numba.uint64[::1])


def block_streams(seed: np.random.SeedSequence, block: int) -> Streams:
    """Return the streams of one block at their beginning: a pure function of the seed and the block's number."""
    first, second, third = (int(word) for word in seed.generate_state(3, np.uint64))
    numbers = block * LANES + np.arange(LANES, dtype=np.uint64)
    lanes = np.empty((4, LANES), dtype=np.uint64)
    lanes[0], lanes[1], lanes[2], lanes[3] = first, second, np.uint64(third) + numbers, 1
    lone = np.array([~np.uint64(first), second, (third + block) % (1 << 64), 1], dtype=np.uint64)
    mix(lanes)
    mix(lone[:, None])
    return Streams(lanes, lone)


@function_value(numba.void(numba.uint64[:, ::1]))
def mix(states):
    """Make the first rounds of the streams in the columns of states (4, n), and let their words go."""
    for j in range(states.shape[1]):
        a, b, c, counter = states[0, j], states[1, j], states[2, j], states[3, j]
        for _ in range(WARM_UP):
            word = a + b + counter
            a = b ^ (b >> np.uint64(11))
            b = c + (c << np.uint64(3))
            c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + word
            counter += np.uint64(1)
        states[0, j], states[1, j], states[2, j], states[3, j] = a, b, c, counter


@stage
def fill_words(lanes, words):
    """Fill words (n, 128), each lane's next n words in its column; n is a multiple of 8, so that 8 words stay in registers."""
    for i in range(0, words.shape[0], 8):
        for j in range(LANES):
            a, b, c, counter = lanes[0, j], lanes[1, j], lanes[2, j], lanes[3, j]
            for h in range(8):
                word = a + b + counter
                a = b ^ (b >> np.uint64(11))
                b = c + (c << np.uint64(3))
                c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + word
                counter += np.uint64(1)
                words[i + h, j] = word
            lanes[0, j], lanes[1, j], lanes[2, j], lanes[3, j] = a, b, c, counter


@stage
def next_uniform(lone):
    """Return the next uniform of the lone stream: a multiple of 2^-53 in [0, 1)."""
    a, b, c = lone[0], lone[1], lone[2]
    word = a + b + lone[3]
    lone[0] = b ^ (b >> np.uint64(11))
    lone[1] = c + (c << np.uint64(3))
    lone[2] = ((c << np.uint64(24)) | (c >> np.uint64(40))) + word
    lone[3] += np.uint64(1)
    return (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
