"""Groups as counts: words of 16 bits to how often each outcome came, a strip of groups at a time."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, NO_ARRAYS, compile_function, paragraph, record_type, stage
from grpo_theory.lanes import WIDTH, load, pick, some, spread, store, tallies, tally_below, where, zeros
from grpo_theory.simulate.draw import choose_prompts
from grpo_theory.simulate.generator import LANES, STREAMS, fill_words, next_uniform
from grpo_theory.simulate.outcome_law import LOWEST, OUTCOME_LAW, S2
from grpo_theory.simulate.strip import STRIP

LARGEST_GROUP = 1 << 15
"""The most responses of a group: their counts are numbers of 16 bits."""
SHEET_RESPONSES = 1 << 14
"""The words of so many responses are drawn at once, and are still in the first level of cache when they are read."""
AT_ONCE = 4
"""A sheet has a multiple of so many words for each group, and a word is compared with so many thresholds at a time, or
with half as many at the end."""


class Sheet(NamedTuple):
    """Random words for some strips of groups: one word of 64 bits for each prompt, and then 16 bits for each response.

    Attributes
    ----------
    words : ndarray of uint64, shape (n, LANES)
    prompts : ndarray of uint64, shape (n_groups, STRIP)
        The prompts' words.
    responses : ndarray of int16, shape (n_groups, at least G, STRIP)
        The responses' words; both look at `words`.
    """

    words: NDArray[np.uint64]
    prompts: NDArray[np.uint64]
    responses: NDArray[np.int16]


class Counts(NamedTuple):
    """S strips of B groups each, as counts.

    Attributes
    ----------
    prompts : ndarray of int64, shape (S, B, STRIP)
    outcomes : ndarray of uint16, shape (S, B, O, STRIP)
        How many responses of the group have each outcome.
    """

    prompts: Integers
    outcomes: NDArray[np.uint16]


class CountingRoom(NamedTuple):
    """Room for one vector of lanes, with as many rows as a prompt has thresholds.

    Attributes
    ----------
    prompts : ndarray, shape (2, WIDTH)
    thresholds : ndarray of int16, shape (at least O, WIDTH)
        Rows of the law's tables, and as many more as are read where so many are compared at once.
    below : ndarray of uint16, shape (at least O, WIDTH)
        Counts of words below the thresholds.
    """

    prompts: Array
    thresholds: NDArray[np.int16]
    below: NDArray[np.uint16]


U2 = numba.uint16[:, ::1]
SHEET = record_type(Sheet, numba.uint64[:, ::1], numba.uint64[:, ::1], numba.int16[:, :, ::1])
COUNTS = record_type(Counts, numba.int64[:, :, ::1], numba.uint16[:, :, :, ::1])
COUNTING_ROOM = record_type(CountingRoom, F2, S2, U2)


def make_sheet(group_size: int) -> Sheet:
    """Make an empty sheet: fixed by the group size alone."""
    rows = -(-group_size // AT_ONCE) * AT_ONCE
    n_groups = max(1, SHEET_RESPONSES // (rows * STRIP))
    n_words = n_groups * (1 + rows // 4) * STRIP
    words = zeros(-(-n_words // (8 * LANES)) * 8, LANES, dtype=np.uint64)
    prompts, responses = np.split(words.reshape(-1)[:n_words], [n_groups * STRIP])
    return Sheet(words, prompts.reshape(-1, STRIP), responses.view(np.int16).reshape(n_groups, rows, STRIP))


def make_counts(n_strips: int, batch_size: int, n_outcomes: int) -> Counts:
    """Make room for counts."""
    prompts = zeros(n_strips, batch_size, STRIP, dtype=np.int64)
    return Counts(prompts, zeros(n_strips, batch_size, n_outcomes, STRIP, dtype=np.uint16))


def make_counting_room(n_thresholds: int) -> CountingRoom:
    """Make room for the counting of groups whose prompts have so many thresholds in the law's table."""
    shape = AT_ONCE * n_thresholds, WIDTH
    return CountingRoom(zeros(2, WIDTH), zeros(*shape, dtype=np.int16), zeros(*shape, dtype=np.uint16))


@stage
def count_below(words, place, j, group_size, thresholds, stride, n_counted, below):
    """Count the words of a group (n, G, STRIP) below so many thresholds (O, WIDTH), a stride apart, for the lanes from j on.

    The first is the last threshold of the first stride.  They are compared four at once, or the last ones two.
    """
    rest = n_counted % AT_ONCE
    whole = n_counted - rest if rest <= AT_ONCE // 2 else n_counted
    for row in range(0, whole, AT_ONCE):
        o = row * stride + stride - 1
        first, second = load(thresholds, o, 0), load(thresholds, o + stride, 0)
        third, fourth = load(thresholds, o + 2 * stride, 0), load(thresholds, o + 3 * stride, 0)
        a, b, c, d = tallies(0), tallies(0), tallies(0), tallies(0)
        for g in range(group_size):
            a, b = tally_below(a, first, words, place, g, j), tally_below(b, second, words, place, g, j)
            c, d = tally_below(c, third, words, place, g, j), tally_below(d, fourth, words, place, g, j)
        store(a, below, row, 0)
        store(b, below, row + 1, 0)
        store(c, below, row + 2, 0)
        store(d, below, row + 3, 0)
    if whole < n_counted:
        o = whole * stride + stride - 1
        first, second = load(thresholds, o, 0), load(thresholds, o + stride, 0)
        a, b = tallies(0), tallies(0)
        for g in range(group_size):
            a, b = tally_below(a, first, words, place, g, j), tally_below(b, second, words, place, g, j)
        store(a, below, whole, 0)
        store(b, below, whole + 1, 0)


@stage
def take_differences(below, s, b, j, outcomes):
    """Turn counts of words below each threshold into counts of the outcomes (S, B, O, STRIP)."""
    before = tallies(0)
    for o in range(outcomes.shape[2]):
        reached = load(below, o, 0)
        store(reached - before, outcomes, s, b, o, j)
        before = reached


@stage
def share_differences(below, n_counted, thresholds, stride, s, b, j, outcomes):
    """Do the same where words were counted for strides of outcomes: each has one, whose threshold is above the one before."""
    before = tallies(0)
    for row in range(n_counted):
        reached = load(below, row, 0)
        found, before = reached - before, reached
        for o in range(row * stride, (row + 1) * stride):
            here = load(thresholds, o, 0)
            is_drawn = here > LOWEST if o == 0 else here > load(thresholds, o - 1, 0)
            store(where(is_drawn, found, 0), outcomes, s, b, o, j)


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
def add_residual(below, last, group_size, residual, lone, s, b, first, counts):
    """Draw the outcomes of the words past the last threshold from their prompts' residual laws, lane by lane, and count them."""
    if some(load(below, last, 0) < group_size):
        for j in range(WIDTH):
            for _ in range(group_size - np.int64(below[last, j])):
                outcome = draw_residual(residual[counts.prompts[s, b, first + j]], lone)
                counts.outcomes[s, b, outcome, first + j] += np.uint16(1)


@stage
def find_thresholds(law, prompts, found):
    """Look up the thresholds of the lanes' prompts, in found (at least O, WIDTH)."""
    if law.columns.shape[0] == 0:
        spread(law.thresholds, prompts, found)
        return
    for o in range(law.columns.shape[0]):
        store(pick(law.columns, o, prompts), found, o, 0)


@paragraph
def count_group(streams, law, n_counted, sheet, place, room, group_size, s, b, j, counts):
    """Draw and count group b of strip s from a place of the sheet, for the lanes from j on; so many thresholds are compared."""
    prompts = choose_prompts(load(sheet.prompts, place, j), law.prompts, room.prompts)
    store(prompts, counts.prompts, s, b, j)
    find_thresholds(law, prompts, room.thresholds)
    count_below(sheet.responses, place, j, group_size, room.thresholds, law.stride, n_counted, room.below)
    if law.stride == 1:
        take_differences(room.below, s, b, j, counts.outcomes)
    else:
        share_differences(room.below, n_counted, room.thresholds, law.stride, s, b, j, counts.outcomes)
    add_residual(room.below, n_counted - 1, group_size, law.residual, streams.lone, s, b, j, counts)


def fill_counts(streams, law, sheet, room, first, group_size, counts):
    """Draw some strips of groups, the first of which is group number `first` of its lane: prompts and counts of outcomes."""
    n_strips, batch_size, _ = counts.prompts.shape
    n_counted = law.residual.shape[1] // law.stride
    for i in range(n_strips * batch_size):
        s, b, place = i // batch_size, i % batch_size, (first + i) % sheet.prompts.shape[0]
        if place == 0:
            fill_words(streams.lanes, sheet.words)
        for j in range(0, STRIP, WIDTH):
            count_group(streams, law, n_counted, sheet, place, room, group_size, s, b, j, counts)


@cache
def compiled_fill_counts() -> Any:
    """Compile `fill_counts`, or read it from the cache."""
    integer = numba.int64
    arguments = STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, integer, integer, COUNTS
    return compile_function(fill_counts, numba.void(*arguments), **NO_ARRAYS)
