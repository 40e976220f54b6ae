"""Groups as counts: words of 8 and 16 bits to how often each outcome came, a tile of groups at a time."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import F2, driver, record_type, stage
from grpo_theory.compiler.lanes import (
    WIDTH,
    as_tally,
    as_those,
    load,
    some,
    store,
    tallies,
    tallies_of,
    tally_below,
    where,
    zeros,
)
from grpo_theory.simulate.draw.outcome_law import OUTCOME_LAW, OutcomeLaw
from grpo_theory.simulate.draw.prompt_tables import S2, choose_prompts, read_short
from grpo_theory.simulate.draw.sheet import SHEET, Sheet
from grpo_theory.simulate.draw.streams import LANES, STREAMS, VECTORS, fill_words, next_uniform
from grpo_theory.validation import Array, Integers

LARGEST_GROUP = 1 << 15
"""The most responses of a group: their counts are numbers of 16 bits."""
AT_ONCE = 4
"""A word is compared with so many thresholds at a time."""
SPAN = 255
"""The most words that a tally of 8 bits counts."""
PAST = (1 << 15) - 1
"""A word of 16 bits that is below no threshold."""


class Counts(NamedTuple):
    """S tiles of B groups each, as counts.

    Attributes
    ----------
    prompts : ndarray of int64, shape (S, B, LANES)
    outcomes : ndarray of uint16, shape (S, B, O, LANES)
        How many responses of the group have each outcome.
    """

    prompts: Integers
    outcomes: NDArray[np.uint16]


class CountingRoom(NamedTuple):
    """Room for one vector of lanes, of whose prompts each has N numbers, C thresholds of either kind among them.

    Attributes
    ----------
    prompts : ndarray, shape (2, WIDTH)
    numbers : ndarray of int16, shape (at least N + 4, WIDTH)
        Those of the lanes' prompts; of the last four that are compared at once some may be nothing.
    below, again : ndarray of uint16, shape (at least N + 4, WIDTH)
        Counts of words below the thresholds, and of those of responses that are drawn again.
    words : ndarray of int16, shape (1, F, WIDTH)
        The words by which they are.
    late : ndarray of uint16, shape (WIDTH,)
        How many there are for which the sheet has no words.
    """

    prompts: Array
    numbers: NDArray[np.int16]
    below: NDArray[np.uint16]
    again: NDArray[np.uint16]
    words: NDArray[np.int16]
    late: NDArray[np.uint16]


U1, U2 = numba.uint16[::1], numba.uint16[:, ::1]
COUNTS = record_type(Counts, numba.int64[:, :, ::1], numba.uint16[:, :, :, ::1])
COUNTING_ROOM = record_type(CountingRoom, F2, S2, U2, U2, numba.int16[:, :, ::1], U1)


def make_counts(n_tiles: int, batch_size: int, n_outcomes: int) -> Counts:
    """Make room for counts."""
    prompts = zeros(n_tiles, batch_size, LANES, dtype=np.int64)
    return Counts(prompts, zeros(n_tiles, batch_size, n_outcomes, LANES, dtype=np.uint16))


def make_counting_room(law: OutcomeLaw, sheet: Sheet) -> CountingRoom:
    """Make room for the counting of groups that are drawn from a law, by the words of a sheet."""
    shape = law.numbers.rows.shape[1] + AT_ONCE, WIDTH
    numbers, words = zeros(*shape, dtype=np.int16), zeros(1, sheet.fine.shape[1], WIDTH, dtype=np.int16)
    below, again, late = zeros(*shape, dtype=np.uint16), zeros(*shape, dtype=np.uint16), zeros(WIDTH, dtype=np.uint16)
    return CountingRoom(zeros(2, WIDTH), numbers, below, again, words, late)


@stage
def count_below(words, place, start, stop, numbers, first, n_counted, below):
    """Count words of a vector of groups (n, G, WIDTH) below so many thresholds, the numbers (N, WIDTH) from the first on."""
    for row in range(0, n_counted, AT_ONCE):
        o = first + row
        one, two = as_those(words, load(numbers, o, 0)), as_those(words, load(numbers, o + 1, 0))
        three, four = as_those(words, load(numbers, o + 2, 0)), as_those(words, load(numbers, o + 3, 0))
        a, b, c, d = tallies_of(words), tallies_of(words), tallies_of(words), tallies_of(words)
        for g in range(start, stop):
            a, b = tally_below(a, one, words, place, g, 0), tally_below(b, two, words, place, g, 0)
            c, d = tally_below(c, three, words, place, g, 0), tally_below(d, four, words, place, g, 0)
        store(as_tally(a), below, row, 0)
        store(as_tally(b), below, row + 1, 0)
        store(as_tally(c), below, row + 2, 0)
        store(as_tally(d), below, row + 3, 0)


@stage
def add_counts(more, n_counted, below):
    """Add counts to others."""
    for row in range(n_counted):
        store(load(below, row, 0) + load(more, row, 0), below, row, 0)


@stage
def keep_words(fine, place, left, words):
    """Keep as many words (n, F, WIDTH) as there are responses left in each lane; those after them are past all thresholds."""
    for g in range(words.shape[1]):
        store(where(left > g, load(fine, place, g, 0), PAST), words, 0, g, 0)


@stage
def count_by_bytes(law, sheet, place, room):
    """Count the words of 8 bits, and draw what they leave by those of 16 bits."""
    group_size, n_counted = law.group_size, law.n_counted
    count_below(sheet.coarse, place, 0, min(SPAN, group_size), room.numbers, 0, n_counted, room.below)
    for start in range(SPAN, group_size, SPAN):
        count_below(sheet.coarse, place, start, min(start + SPAN, group_size), room.numbers, 0, n_counted, room.again)
        add_counts(room.again, n_counted, room.below)
    left, size = group_size - load(room.below, n_counted - 1, 0), room.words.shape[1]
    store(where(left > size, left - size, 0), room.late, 0)
    keep_words(sheet.fine, place, left, room.words)
    count_below(room.words, 0, 0, size, room.numbers, n_counted, n_counted, room.again)
    add_counts(room.again, n_counted, room.below)


@stage
def take_differences(room, law, j, outcomes):
    """Turn counts of words below each threshold into counts of the outcomes (O, LANES).

    Of a stride the prompt's number of a reward says which outcome it was.
    """
    before, first, stride = tallies(0), first_reward(law), law.stride
    for k in range(law.n_counted):
        reached = load(room.below, k, 0)
        if stride == 1:
            store(reached - before, outcomes, k, j)
        else:
            reward = load(room.numbers, first + k, 0)
            for value in range(stride):
                store(where(reward == value, reached - before, 0), outcomes, k * stride + value, j)
        before = reached


@stage
def draw_residual(residual, lone):
    """Draw an outcome from a residual law (O,), not normalised, with 53 bits of the lone stream."""
    rest = 0.0
    for o in range(residual.shape[0]):
        rest += residual[o]
    rest *= next_uniform(lone)
    found = 0
    for o in range(residual.shape[0]):
        if residual[o] > 0.0:
            found = o
            rest -= residual[o]
            if rest < 0.0:
                break
    return found


@stage
def add_residual(law, room, lone, prompts, first, outcomes):
    """Draw the outcomes of what is left after all words from their prompts' residual laws, lane by lane, and count them."""
    last, group_size = law.n_counted - 1, law.group_size
    if some(load(room.below, last, 0) < group_size):
        for j in range(WIDTH):
            prompt, n = prompts[first + j], group_size - np.int64(room.below[last, j])
            for i in range(n):
                residual = law.fine if i < n - room.late[j] else law.coarse
                outcomes[draw_residual(residual[prompt], lone), first + j] += np.uint16(1)


@stage
def first_reward(law):
    """Return where the numbers of rewards begin among a prompt's numbers: after the thresholds of either kind."""
    return 2 * law.n_counted if law.coarse.shape[0] > 0 else law.n_counted


@stage
def begin_group(streams, law, sheet, place, room, j, prompts):
    """Draw the prompts (LANES,) of a group, for the lanes from j on, and read their numbers; a sheet begins with new words."""
    if place == 0:
        fill_words(streams.lanes, LANES, sheet.words)
    chosen = choose_prompts(load(sheet.prompts, place, 0), law.prompts, room.prompts)
    store(chosen, prompts, j)
    read_short(law.numbers, chosen, room.numbers)


@stage
def count_group(streams, law, sheet, place, room, j, prompts, outcomes):
    """Draw the responses of a group that has begun, and count its outcomes (O, LANES), for the lanes from j on."""
    if law.coarse.shape[0] > 0:
        count_by_bytes(law, sheet, place, room)
    else:
        count_below(sheet.fine, place, 0, law.group_size, room.numbers, 0, law.n_counted, room.below)
    take_differences(room, law, j, outcomes)
    add_residual(law, room, streams.lone, prompts, j, outcomes)


@driver(numba.void(STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, numba.int64, COUNTS))
def fill_counts(streams, law, sheet, room, first, counts):
    """Draw some tiles of groups, the first of which is group number `first` of its lane: prompts and counts of outcomes."""
    n_tiles, batch_size, _, _ = counts.outcomes.shape
    place, size = first * VECTORS % sheet.prompts.shape[0], sheet.prompts.shape[0]
    for s in range(n_tiles):
        for b in range(batch_size):
            prompts, outcomes = counts.prompts[s, b], counts.outcomes[s, b]
            for j in range(0, LANES, WIDTH):
                begin_group(streams, law, sheet, place, room, j, prompts)
                count_group(streams, law, sheet, place, room, j, prompts, outcomes)
                place = place + 1 if place + 1 < size else 0
