"""Draws: random words of blocks of replications, and groups that a fixed policy draws by them.

Words are those of SFC64 (Doty-Humphrey, PractRand), one stream for each replication of a tile, keyed by its block.  A lane is bit
for bit numpy's SFC64 from the same state.  Replications lie side by side in the last axis of every array.  Threads work on
blocks, whose results come in the blocks' order.

A group is counted by comparisons of integer words with thresholds, without finding out which response had which outcome.  Let p
be the probabilities of a prompt's classes of outcomes.  Then p = (1 - R/2^16) d + (R/2^16) q, where d is made of the whole parts
of 2^16 p, and q of what is left.  A word of 16 bits below 2^16 - R is a draw from d.  Any other leads to a draw from q with 53
bits.  So the law is exact to the rounding of p, whatever p.
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

from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Point
from grpo_theory.validation import Array, Integers, as_count, as_generator
from grpo_theory.validation import Rng as Rng

LANES = 64
"""The replications of a tile, and the most runs side by side: as many as eight of the longest vectors hold."""
_U11, _U3, _U24, _U40, _ONE = (np.uint64(number) for number in (11, 3, 24, 40, 1))
LARGEST_GROUP = 1 << 15
"""The most responses of a group: their counts are numbers of 16 bits."""
PAST = 32767
"""A word of 16 bits that is below no threshold."""
MOST_RESPONSES = 1 << 20
"""The most responses of a step: drawn for all lanes at once, each takes some 3 to 10 kB."""
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
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


def as_sizes(batch_size: int, group_size: int) -> tuple[int, int]:
    """Return the prompts and the responses to each of a step that is drawn; raise if these are too many to hold."""
    batch_size, group_size = as_count("batch_size", batch_size), as_count("group_size", group_size)
    if batch_size * group_size > MOST_RESPONSES:
        raise ValueError(
            f"batch_size times group_size must be at most {MOST_RESPONSES:,} to be drawn, got {batch_size} times {group_size}. "
            "Draw smaller batches, or ask an exact law, whose cost does not depend on batch_size (gradient_law, group_size_law)"
        )
    return batch_size, group_size


class PromptLaw(NamedTuple):
    """The alias table of the prompts (Walker; Vose): of each, which share of 2^32 it keeps, and who has the rest; (M,) both."""

    kept: NDArray[np.uint64]
    alias: Integers


class OutcomeLaw(NamedTuple):
    """What responses are drawn from, at each prompt; a class of outcomes is a response with one of L reward values.

    Attributes
    ----------
    prompts : PromptLaw
    thresholds : ndarray of int16, shape (C or C + 1, M)
        The distribution function of the classes' whole parts, less 2^15; an even number of rows, because two are counted at once.
    residual : ndarray, shape (M, C)
        The law of what words of 16 bits leave open.
    """

    prompts: PromptLaw
    thresholds: NDArray[np.int16]
    residual: Array


def prompt_law(weights: Array) -> PromptLaw:
    """Return the alias table of prompts with these weights (M,)."""
    kept, choices = np.empty(len(weights)), np.empty((len(weights), 2), dtype=np.int64)
    fill_aliases(weights[None], kept, choices)
    return PromptLaw(np.rint(kept * 2.0**32).astype(np.uint64), np.ascontiguousarray(choices[:, 1]))


@kernel
def fill_aliases(laws, thresholds, choices):
    """Fill the alias tables of laws (S, V), in Vose's order, whose places are numbered through all laws."""
    n_states, n_tokens = laws.shape
    small, large = np.empty(n_tokens, np.int64), np.empty(n_tokens, np.int64)
    for s in range(n_states):
        first, total, n_small, n_large = s * n_tokens, 0.0, 0, 0
        for v in range(n_tokens):
            total += laws[s, v]
        for v in range(n_tokens):
            edge = first + v
            # In the end n_tokens p_v = thresholds[v] + the sum of 1 - thresholds[low] over low with choices[low, 1] = v
            # (Walker 1977; Vose 1991).
            thresholds[edge] = laws[s, v] * n_tokens / total
            choices[edge, 0] = choices[edge, 1] = edge
            if thresholds[edge] < 1.0:
                small[n_small] = edge
                n_small += 1
            else:
                large[n_large] = edge
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            low, high = small[n_small], large[n_large - 1]
            choices[low, 1] = high
            thresholds[high] -= 1.0 - thresholds[low]
            if thresholds[high] < 1.0:
                n_large -= 1
                small[n_small] = high
                n_small += 1
        # What is left is 1 up to rounding; a point of probability 0 is never left, because its deficit is 1.
        for j in range(n_small):
            thresholds[small[j]] = 1.0
        for j in range(n_large):
            thresholds[large[j]] = 1.0


def outcome_law(point: Point) -> OutcomeLaw:
    """Tabulate the law of prompts, and of outcomes at a point."""
    p = point.outcome_probabilities
    scaled = 65536.0 * (p / p.sum(axis=1, keepdims=True))
    # p = whole/2^16 + rho residual, with rho = 1 - sum_c whole_c/2^16 (docs/derivations.md, section 17).
    whole = np.floor(scaled)
    full = whole.sum(axis=1) >= 65536.0  # at least one word is left open, so that every threshold has 16 bits
    whole[full, np.argmax(whole[full], axis=1)] -= 1.0
    left = scaled - whole
    reached = (np.cumsum(whole, axis=1) - 32768.0).astype(np.int16)
    thresholds = np.ascontiguousarray(np.pad(reached, ((0, 0), (0, p.shape[1] % 2)), mode="edge").T)
    return OutcomeLaw(prompt_law(point.bandit.prompt_weights), thresholds, left / left.sum(axis=1, keepdims=True))


class Batches(NamedTuple):
    """T tiles of batches of B groups.

    Attributes
    ----------
    prompts : ndarray of int64, shape (T, B, LANES)
    counts : ndarray of uint16, shape (T, B, C, LANES)
        How many responses of the group are in each class.
    ordered : ndarray of uint16, shape (T, B, G, LANES)
        The class of each response, in the order drawn; of no tiles where nobody asks for it.
    """

    prompts: Integers
    counts: NDArray[np.uint16]
    ordered: NDArray[np.uint16]


class DrawRoom(NamedTuple):
    """What a tile is drawn in: words (n, LANES), their quarters (4 n, LANES), and of classes the thresholds and words below."""

    words: NDArray[np.uint64]
    short: NDArray[np.int16]
    thresholds: NDArray[np.int16]
    below: NDArray[np.uint16]


def make_batches(law: OutcomeLaw, n_tiles: int, batch_size: int, group_size: int, *, in_order: bool) -> Batches:
    """Make room for batches that are drawn from a law."""
    counts = np.empty((n_tiles, batch_size, law.residual.shape[1], LANES), dtype=np.uint16)
    ordered = np.empty((n_tiles if in_order else 0, batch_size, group_size, LANES), dtype=np.uint16)
    return Batches(np.empty((n_tiles, batch_size, LANES), dtype=np.int64), counts, ordered)


def make_draw_room(law: OutcomeLaw, batch_size: int, group_size: int) -> DrawRoom:
    """Make room for a tile that is drawn from a law."""
    rows = batch_size * (1 + -(-group_size // 4))
    words, shape = np.empty((-(-rows // 4) * 4, LANES), dtype=np.uint64), (law.thresholds.shape[0], LANES)
    short = words.view(np.int16).reshape(-1, LANES)
    return DrawRoom(words, short, np.empty(shape, dtype=np.int16), np.empty(shape, dtype=np.uint16))


@inlined
def choose_prompts(words, row, law, prompts):
    """Choose prompts (LANES,) by the words of a row: a column by the upper half, who keeps it by the lower."""
    n_prompts = np.uint64(law.kept.shape[0])
    for j in range(prompts.shape[0]):
        # P(m) = (kept[m]/2^32 + the sum of 1 - kept[c]/2^32 over columns c with alias[c] = m)/n_prompts (Walker 1977).
        word = words[row, j]
        column = np.int64(((word >> _HALF) * n_prompts) >> _HALF)
        prompts[j] = column if (word & _LOW) < law.kept[column] else law.alias[column]


@inlined
def count_below(words, first, stop, thresholds, below):
    """Count words (n, LANES), from the first to before `stop`, below each threshold (an even number, LANES)."""
    for c in range(0, thresholds.shape[0], 2):
        for j in range(below.shape[1]):
            below[c, j] = 0
            below[c + 1, j] = 0
        for g in range(first, stop, 4):
            for j in range(below.shape[1]):
                one, two = thresholds[c, j], thresholds[c + 1, j]
                x, y, z, w = words[g, j], words[g + 1, j], words[g + 2, j], words[g + 3, j]
                below[c, j] += int(x < one) + int(y < one) + int(z < one) + int(w < one)
                below[c + 1, j] += int(x < two) + int(y < two) + int(z < two) + int(w < two)


@inlined
def count_classes(words, first, group_size, thresholds, below, counts):
    """Count the classes (C, LANES) of a group by its words, from the first on."""
    count_below(words, first, first + (group_size + 3) // 4 * 4, thresholds, below)
    # C_c = #(words < F_c) - #(words < F_{c-1}), with thresholds F: a group is its counts (docs/derivations.md, section 17).
    for j in range(counts.shape[1]):
        counts[0, j] = below[0, j]
    for c in range(1, counts.shape[0]):
        for j in range(counts.shape[1]):
            counts[c, j] = below[c, j] - below[c - 1, j]


@inlined
def draw_residual(law, prompt, lone):
    """Draw a class from what words of 16 bits leave open."""
    rest, last, c = next_uniform(lone), law.residual.shape[1] - 1, 0
    # The first c with residual_0 + ... + residual_c > u, for u of 53 bits (docs/derivations.md, section 17).
    while c < last and rest >= law.residual[prompt, c]:
        rest -= law.residual[prompt, c]
        c += 1
    while law.residual[prompt, c] == 0.0:
        c -= 1
    return c


@inlined
def find_in_order(words, first, thresholds, n_classes, ordered):
    """Find the class of each response (G, LANES), by how many thresholds its word has reached, from the first word on."""
    for g in range(ordered.shape[0]):
        for j in range(ordered.shape[1]):
            reached = 0
            for c in range(n_classes):
                reached += int(words[first + g, j] >= thresholds[c, j])
            ordered[g, j] = reached


@inlined
def tally(ordered, counts):
    """Count how many responses (G, LANES) are in each class (C, LANES)."""
    for c in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            counts[c, j] = 0
    for g in range(ordered.shape[0]):
        for j in range(ordered.shape[1]):
            counts[ordered[g, j], j] += np.uint16(1)


@inlined
def draw_group(law, b, batch_size, group_size, room, prompts):
    """Choose the prompts (LANES,) of a group, fill in their thresholds, and return the first row of the responses' words."""
    choose_prompts(room.words, b, law.prompts, prompts)
    for c in range(room.thresholds.shape[0]):
        for j in range(LANES):
            room.thresholds[c, j] = law.thresholds[c, prompts[j]]
    padded = (group_size + 3) // 4 * 4
    first = 4 * batch_size + b * padded
    for row in range(first + group_size, first + padded):
        for j in range(LANES):
            room.short[row, j] = PAST
    return first


@kernel
def fill_batches(law, group_size, streams, room, batches):
    """Draw tiles of batches: prompts and counts.

    The first B words of a tile are for the prompts, and the quarters of later words for the responses.
    """
    n_tiles, batch_size, _ = batches.prompts.shape
    for t in range(n_tiles):
        fill_words(streams.lanes, room.words)
        for b in range(batch_size):
            prompts, counts = batches.prompts[t, b], batches.counts[t, b]
            first = draw_group(law, b, batch_size, group_size, room, prompts)
            count_classes(room.short, first, group_size, room.thresholds, room.below, counts)
            for j in range(LANES):
                for _ in range(group_size - np.int64(room.below[counts.shape[0] - 1, j])):
                    counts[draw_residual(law, prompts[j], streams.lone), j] += np.uint16(1)


@kernel
def fill_ordered_batches(law, group_size, streams, room, batches):
    """Draw tiles of batches from the same words: prompts, the class of each response in the order drawn, and counts."""
    n_tiles, batch_size, _ = batches.prompts.shape
    for t in range(n_tiles):
        fill_words(streams.lanes, room.words)
        for b in range(batch_size):
            prompts, ordered, n_classes = batches.prompts[t, b], batches.ordered[t, b], law.residual.shape[1]
            first = draw_group(law, b, batch_size, group_size, room, prompts)
            find_in_order(room.short, first, room.thresholds, n_classes, ordered)
            for g in range(group_size):
                for j in range(LANES):
                    if ordered[g, j] == n_classes:
                        ordered[g, j] = draw_residual(law, prompts[j], streams.lone)
            tally(ordered, batches.counts[t, b])


@kernel
def pool_tokens(lengths, pool, counts, rows):
    """Divide rows (B R, D, LANES), R of each group, by the tokens of `pool` groups, and multiply them by their responses.

    The counts (B, C, LANES) are those of classes.
    """
    lanes, n_values = counts.shape[2], counts.shape[1] // lengths.shape[0]
    n_rows, tokens, responses = rows.shape[0] // counts.shape[0], np.empty(lanes), np.empty(lanes)
    for first in range(0, counts.shape[0], pool):
        for j in range(lanes):
            tokens[j] = 0.0
            responses[j] = 0.0
        for b in range(first, first + pool):
            for c in range(counts.shape[1]):
                for j in range(lanes):
                    tokens[j] += counts[b, c, j] * lengths[c // n_values]
                    responses[j] += counts[b, c, j]
        for i in range(first * n_rows, (first + pool) * n_rows):
            for d in range(rows.shape[1]):
                for j in range(lanes):
                    # A token weighs G/(tokens of the group), or B G/(tokens of the batch) (docs/derivations.md, section 16).
                    rows[i, d, j] *= responses[j] / tokens[j]
