"""Random streams: one generator a block, keyed by its number, or SFC64 in 128 lanes, one for each run of a block.

SFC64 (Doty-Humphrey, PractRand) has three words of state and a counter.  It needs only additions, shifts and exclusive ors, so
the lanes of one loop are worked on together.  A lane is bit for bit numpy's SFC64 from the same state.
"""

import numbers
from threading import local
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, load, store

Rng = int | np.random.SeedSequence | np.random.Generator
LANES = 128
"""The streams of a block, one for each run or replication.  They lie side by side in the last axis of arrays: a tile of them."""
VECTORS = LANES // WIDTH
"""The vectors of lanes that they make."""
WARM_UP = 24
"""Rounds after which states that began one apart have nothing in common; numpy makes 12, from seeds that are already mixed."""


class Begun(local):
    """How many simulations this thread has begun: a number that was computed since another count may be an estimate."""

    times = 0


BEGUN = Begun()


def as_seed_sequence(rng: Rng | None) -> np.random.SeedSequence:
    """Return the seed sequence that `rng` stands for; a Generator gives 128 of its bits, None gives fresh entropy."""
    BEGUN.times += 1
    if rng is None:
        return np.random.SeedSequence()
    if isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(0, 2**32, size=4, dtype=np.uint32).tolist())
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0:
        return np.random.SeedSequence(int(rng))
    raise TypeError(f"rng must be a non-negative int, a SeedSequence or a Generator, got {rng!r}")


def block_generator(seed: np.random.SeedSequence, block: int) -> np.random.Generator:
    """Return the generator of one block: a pure function of the seed and the block's number."""
    key = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, block), pool_size=seed.pool_size)
    return np.random.Generator(np.random.SFC64(key))


class Streams(NamedTuple):
    """The streams of some blocks one after another, in the middle of their way.

    Attributes
    ----------
    lanes : ndarray of uint64, shape (4 blocks, 128)
        Three words of state and the counter, one column for each lane.
    lone : ndarray of uint64, shape (4 blocks,)
        Of a stream that the lanes of a block share, for what is drawn seldom.
    """

    lanes: NDArray[np.uint64]
    lone: NDArray[np.uint64]


STREAMS = record_type(Streams, numba.uint64[:, ::1], numba.uint64[::1])


def make_streams(n_blocks: int = 1) -> Streams:
    """Make room for the streams of some blocks."""
    return Streams(np.empty((4 * n_blocks, LANES), dtype=np.uint64), np.empty(4 * n_blocks, dtype=np.uint64))


def stream_words(seed: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Return what the streams of all blocks of a seed begin with, shape (3,)."""
    return np.asarray(seed.generate_state(3, np.uint64), dtype=np.uint64)


def block_streams(seed: np.random.SeedSequence, block: int, n_blocks: int = 1) -> Streams:
    """Return the streams of some blocks at their beginning, of each a pure function of the seed and the block's number."""
    streams = make_streams(n_blocks)
    begin_streams(stream_words(seed), block, streams)
    return streams


@stage
def turn(a, b, c, counter):
    """Return the next word of a stream, and its state then."""
    word = a + b + counter
    mixed = ((c << np.uint64(24)) | (c >> np.uint64(40))) + word
    return word, b ^ (b >> np.uint64(11)), c + (c << np.uint64(3)), mixed, counter + np.uint64(1)


@stage
def uniform(word):
    """Return the uniform that a word makes, a multiple of 2^-53 in [0, 1)."""
    return (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@stage
def mix(a, b, c, counter):
    """Make the first rounds of a stream, and let their words go; return its state."""
    for _ in range(WARM_UP):
        _, a, b, c, counter = turn(a, b, c, counter)
    return a, b, c, counter


@function_value(numba.void(numba.uint64[::1], numba.int64, STREAMS))
def begin_streams(words, block, streams):
    """Begin the streams of a block and of those that follow it, from a seed's words (3,): the one place that numbers lanes."""
    lanes, lone, one = streams.lanes, streams.lone, np.uint64(1)
    for a in range(0, lone.shape[0], 4):
        b, c, d, number = a + 1, a + 2, a + 3, (block + a // 4) * LANES
        for j in range(LANES):
            lanes[a, j], lanes[b, j], lanes[c, j], lanes[d, j] = mix(words[0], words[1], words[2] + np.uint64(number + j), one)
        lone[a], lone[b], lone[c], lone[d] = mix(~words[0], words[1], words[2] + np.uint64(number // LANES), one)


@stage
def fill_words(lanes, runs, words):
    """Fill words (n, 128) with each lane's next n words, in its column; at least those that so many runs use.

    Words are also read in halves, as two rows of 128 for one.  The words of the runs are then in the first lanes of each half of
    the lanes.
    """
    for j in range(0, LANES, WIDTH):
        if j % (LANES // 2) >= runs:
            continue
        a, b, c, counter = load(lanes, 0, j), load(lanes, 1, j), load(lanes, 2, j), load(lanes, 3, j)
        for i in range(words.shape[0]):
            word = a + b + counter
            a = b ^ (b >> 11)
            b = c + (c << 3)
            c = ((c << 24) | (c >> 40)) + word
            counter = counter + 1
            store(word, words, i, j)
        store(a, lanes, 0, j)
        store(b, lanes, 1, j)
        store(c, lanes, 2, j)
        store(counter, lanes, 3, j)


@stage
def next_uniform(lone):
    """Return the next uniform of the lone stream."""
    word, lone[0], lone[1], lone[2], lone[3] = turn(lone[0], lone[1], lone[2], lone[3])
    return uniform(word)
