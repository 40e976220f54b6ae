"""Groups as counts: words of 16 bits to how often each outcome came, a strip of groups at a time."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F1, compile_function, record_type, stage
from grpo_theory.simulate.draw import draw_prompts
from grpo_theory.simulate.generator import LANES, STREAMS, fill_words, next_uniform
from grpo_theory.simulate.outcome_law import OUTCOME_LAW, S2, WORDS
from grpo_theory.simulate.strip import STRIP

LARGEST_GROUP = 1 << 15
"""The most responses of a group: their counts are numbers of 16 bits."""
SHEET_RESPONSES = 1 << 14
"""The words of so many responses are drawn at once, and are still in the first level of cache when they are read."""
AT_ONCE = 4
"""The words that are compared with a threshold while it stays in a register; a sheet has a multiple of them for each group."""
NEVER_BELOW = np.int16(WORDS // 2 - 1)
"""A word that no threshold is above."""


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
    """Room for one strip of groups: uniforms (STRIP,), thresholds (O, STRIP), and counts of words below them (O, STRIP)."""

    uniforms: Array
    thresholds: NDArray[np.int16]
    below: NDArray[np.uint16]


U2 = numba.uint16[:, ::1]
SHEET = record_type(Sheet, numba.uint64[:, ::1], numba.uint64[:, ::1], numba.int16[:, :, ::1])
COUNTS = record_type(Counts, numba.int64[:, :, ::1], numba.uint16[:, :, :, ::1])
COUNTING_ROOM = record_type(CountingRoom, F1, S2, U2)


def make_sheet(group_size: int) -> Sheet:
    """Make an empty sheet: fixed by the group size alone."""
    rows = -(-group_size // AT_ONCE) * AT_ONCE
    n_groups = max(1, SHEET_RESPONSES // (rows * STRIP))
    n_words = n_groups * (1 + rows // 4) * STRIP
    words = np.zeros((-(-n_words // (8 * LANES)) * 8, LANES), dtype=np.uint64)
    prompts, responses = np.split(words.reshape(-1)[:n_words], [n_groups * STRIP])
    return Sheet(words, prompts.reshape(-1, STRIP), responses.view(np.int16).reshape(n_groups, rows, STRIP))


def make_counts(n_strips: int, batch_size: int, n_outcomes: int) -> Counts:
    """Make room for counts."""
    prompts = np.zeros((n_strips, batch_size, STRIP), dtype=np.int64)
    return Counts(prompts, np.zeros((n_strips, batch_size, n_outcomes, STRIP), dtype=np.uint16))


def make_counting_room(n_outcomes: int) -> CountingRoom:
    """Make room for the counting of one strip of groups."""
    shape = n_outcomes, STRIP
    return CountingRoom(np.zeros(STRIP), np.zeros(shape, dtype=np.int16), np.zeros(shape, dtype=np.uint16))


@stage
def fill_uniforms(words, uniforms):
    """Turn words of 64 bits into multiples of 2^-53 in [0, 1)."""
    for j in range(STRIP):
        uniforms[j] = np.int64(words[j] >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@stage
def look_up_thresholds(table, prompts, found):
    """Read the thresholds (O, STRIP) of each lane's prompt from a table (O, M)."""
    for o in range(table.shape[0]):
        for j in range(STRIP):
            found[o, j] = table[o, np.uintp(prompts[j])]


@stage
def count_below(words, group_size, thresholds, below):
    """Count for each lane the words, G rows of a multiple of 4, that are below each of its thresholds (O, STRIP)."""
    for g in range(group_size, words.shape[0]):
        for j in range(STRIP):
            words[g, j] = NEVER_BELOW
    for o in range(thresholds.shape[0]):
        for j in range(STRIP):
            below[o, j] = 0
    for g in range(0, words.shape[0], AT_ONCE):
        for o in range(thresholds.shape[0]):
            for j in range(STRIP):
                threshold = thresholds[o, j]
                found = below[o, j]
                for h in range(AT_ONCE):
                    found += np.uint16(words[g + h, j] < threshold)
                below[o, j] = found


@stage
def take_differences(below, counts):
    """Turn counts of words below each threshold into counts of the outcomes, both (O, STRIP)."""
    for o in range(below.shape[0]):
        for j in range(STRIP):
            counts[o, j] = below[o, j] - (below[o - 1, j] if o > 0 else np.uint16(0))


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
def add_residual(below, group_size, prompts, residual, lone, counts):
    """Draw the outcomes of the words past the last threshold from their prompts' residual laws, lane by lane, and count them."""
    last = below.shape[0] - 1
    drawn = 0
    for j in range(STRIP):
        drawn += below[last, j]
    if drawn < group_size * STRIP:
        for j in range(STRIP):
            for _ in range(group_size - np.int64(below[last, j])):
                counts[draw_residual(residual[prompts[j]], lone), j] += np.uint16(1)


def fill_counts(streams, law, sheet, room, first, group_size, counts):
    """Draw some strips of groups, the first of which is group number `first` of its lane: prompts and counts of outcomes."""
    n_strips, batch_size, _ = counts.prompts.shape
    for i in range(n_strips * batch_size):
        s, b, place = i // batch_size, i % batch_size, (first + i) % sheet.prompts.shape[0]
        if place == 0:
            fill_words(streams.lanes, sheet.words)
        prompts, found = counts.prompts[s, b], counts.outcomes[s, b]
        fill_uniforms(sheet.prompts[place], room.uniforms)
        draw_prompts(room.uniforms, law.prompt_threshold, law.prompt_choices, prompts)
        look_up_thresholds(law.thresholds, prompts, room.thresholds)
        count_below(sheet.responses[place], group_size, room.thresholds, room.below)
        take_differences(room.below, found)
        add_residual(room.below, group_size, prompts, law.residual, streams.lone, found)


@cache
def compiled_fill_counts() -> Any:
    """Compile `fill_counts`, or read it from the cache."""
    integer = numba.int64
    return compile_function(fill_counts, numba.void(STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, integer, integer, COUNTS))
