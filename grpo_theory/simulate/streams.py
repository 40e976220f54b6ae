"""Random words in lanes: SFC64 (Doty-Humphrey, PractRand), one stream for each replication of a tile, keyed by its block.

A lane is bit for bit numpy's SFC64 from the same state.  Replications lie side by side in the last axis of every array.
"""

from threading import local
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.jit import kernel
from grpo_theory.validation import Rng as Rng
from grpo_theory.validation import as_generator

LANES = 64
"""The replications of a tile, and the most runs side by side: as many as eight of the longest vectors hold."""
_U11, _U3, _U24, _U40, _ONE = (np.uint64(number) for number in (11, 3, 24, 40, 1))
WARM_UP = 12


class Begun(local):
    """How many simulations this thread has begun: a number that was computed since another count may be an estimate."""

    times = 0


BEGUN = Begun()


def as_seed_sequence(rng: Rng | None) -> np.random.SeedSequence:
    """Return the seed sequence that `rng` stands for; a Generator gives 128 of its bits, None gives fresh entropy."""
    BEGUN.times += 1
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(0, 2**32, size=4, dtype=np.uint32).tolist())
    return rng if isinstance(rng, np.random.SeedSequence) else as_generator(rng).bit_generator.seed_seq  # type: ignore


def block_generator(seed: np.random.SeedSequence, block: int) -> np.random.Generator:
    """Return the generator of one block: a pure function of the seed and the block's number."""
    return np.random.Generator(np.random.SFC64(block_seed(seed, block)))


def block_seed(seed: np.random.SeedSequence, block: int) -> np.random.SeedSequence:
    """Return the seed of one block."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, block), pool_size=seed.pool_size)


class Streams(NamedTuple):
    """The streams of a block in the middle of their way.

    Attributes
    ----------
    lanes : ndarray of uint64, shape (4, LANES)
        Three words of state and a counter, a column for each lane.
    lone : ndarray of uint64, shape (4, 1)
        A stream that the lanes share, for what is drawn seldom.
    """

    lanes: NDArray[np.uint64]
    lone: NDArray[np.uint64]


def block_streams(seed: np.random.SeedSequence, block: int) -> Streams:
    """Return the streams of a block at their beginning: a pure function of the seed and the block's number."""
    states = np.ones((4, LANES + 1), dtype=np.uint64)
    states[:3] = block_seed(seed, block).generate_state(3 * (LANES + 1), np.uint64).reshape(3, -1)
    streams = Streams(np.ascontiguousarray(states[:, :LANES]), states[:, LANES:].copy())
    for state in streams:
        fill_words(state, np.empty((WARM_UP, state.shape[1]), dtype=np.uint64))
    return streams


@kernel
def fill_words(states, words):
    """Fill words (4 n, lanes) with each lane's next 4 n words, four at a time, for which a state is read once."""
    for row in range(0, words.shape[0], 4):
        for j in range(words.shape[1]):
            a, b, c, counter = states[0, j], states[1, j], states[2, j], states[3, j]
            for k in range(4):
                # a, b, c, counter = b ^ (b >> 11), 9 c, rotl(c, 24) + word, counter + 1, all mod 2^64 (SFC64, PractRand).
                word = a + b + counter
                words[row + k, j] = word
                a = b ^ (b >> _U11)
                b = c + (c << _U3)
                c = ((c << _U24) | (c >> _U40)) + word
                counter += _ONE
            states[0, j] = a
            states[1, j] = b
            states[2, j] = c
            states[3, j] = counter


@kernel
def next_word(state):
    """Return the next word of a lone stream (4, 1)."""
    a, b, c, counter = state[0, 0], state[1, 0], state[2, 0], state[3, 0]
    word = a + b + counter
    state[0, 0] = b ^ (b >> _U11)
    state[1, 0] = c + (c << _U3)
    state[2, 0] = ((c << _U24) | (c >> _U40)) + word
    state[3, 0] = counter + _ONE
    return word


@kernel
def next_uniform(state):
    """Return the next multiple of 2^-53 in [0, 1) of a lone stream (4, 1)."""
    # floor(word/2^11)/2^53: the draw with 53 bits of docs/derivations.md, section 17.
    return (next_word(state) >> _U11) * (1.0 / 9007199254740992.0)
