"""Blocks of replications: random words of their own, and threads that work on them, whose results come in the blocks' order.

Words are those of SFC64 (Doty-Humphrey, PractRand), one stream for each replication of a tile, keyed by its block.  A lane is bit
for bit numpy's SFC64 from the same state.  Replications lie side by side in the last axis of every array.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from threading import Event, Timer, current_thread, local, main_thread
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from grpo_theory.jit import inlined
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


@inlined
def fill_words(states, words):
    """Fill words (4 n, lanes) with each lane's next 4 n words."""
    fill_lanes(states, words, 0, words.shape[1])


@inlined
def fill_lanes(states, words, first, stop):
    """Fill words (4 n, lanes) of some lanes with their next 4 n words, four at a time, for which a state is read once."""
    for row in range(0, words.shape[0], 4):
        for j in range(first, stop):
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


@inlined
def next_word(state):
    """Return the next word of a lone stream (4, 1)."""
    a, b, c, counter = state[0, 0], state[1, 0], state[2, 0], state[3, 0]
    word = a + b + counter
    state[0, 0] = b ^ (b >> _U11)
    state[1, 0] = c + (c << _U3)
    state[2, 0] = ((c << _U24) | (c >> _U40)) + word
    state[3, 0] = counter + _ONE
    return word


@inlined
def next_uniform(state):
    """Return the next multiple of 2^-53 in [0, 1) of a lone stream (4, 1)."""
    # floor(word/2^11)/2^53: the draw with 53 bits of docs/derivations.md, section 17.
    return (next_word(state) >> _U11) * (1.0 / 9007199254740992.0)


PATIENCE = 3.0
"""Seconds after which progress is shown."""
Job = TypeVar("Job")
Result = TypeVar("Result")


class Waiting(local):
    """Whether somebody waits for what this thread computes: the event is set when nobody does any more."""

    ended: Event | None = None


_WAITING = Waiting()


class NotWantedError(Exception):
    """Nobody waits any more for what a thread computes."""


def check_wanted() -> None:
    """Raise `NotWantedError` in a thread for which nobody waits any more; long work asks now and then."""
    if _WAITING.ended is not None and _WAITING.ended.is_set():
        raise NotWantedError


def with_progress(done: Iterable[Result], total: int, what: str) -> Iterator[Result]:
    """Yield what is done, under a bar with a name on a terminal, if it takes seconds, as where code is compiled first."""
    if not what or not sys.stderr.isatty() or current_thread() is not main_thread() or parent_process() is not None:
        yield from done
        return
    with tqdm(total=total, desc=what, delay=PATIENCE, leave=False) as bar:
        timer = Timer(PATIENCE, bar.refresh)  # a bar alone is shown when something is done
        timer.daemon = True
        timer.start()
        try:
            for one in done:
                yield one
                bar.update()
        finally:
            timer.cancel()


def map_in_order(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int, what: str = "") -> Iterator[Result]:
    """Yield function(job) for each job, in the jobs' order; what is not done is given up where nobody waits any more."""
    jobs = [*jobs]
    if workers == 1:
        yield from with_progress(map(function, jobs), len(jobs), what)
        return
    ended = Event()
    pool = ThreadPoolExecutor(workers, initializer=setattr, initargs=(_WAITING, "ended", ended))
    try:
        yield from with_progress(pool.map(function, jobs), len(jobs), what)
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)
