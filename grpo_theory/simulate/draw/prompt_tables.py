"""Prompts, drawn by their alias table, and what belongs to those of lanes: chosen from all, or looked up where these are many.

A choice compares each prompt's number with those of all lanes at once, or picks from registers where the processor can.  A
look-up reads memory for each lane.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import F1, F2, I2, READONLY_F2, function_value, record_type, stage
from grpo_theory.compiler.lanes import (
    PICKED,
    add_at,
    as_integer,
    as_real,
    lane_numbers,
    load,
    pick,
    reals,
    spread,
    store,
    take,
    turned,
    where,
    whole_rows,
)
from grpo_theory.validation import Array

S2 = numba.int16[:, ::1]
FEW = 5
"""The most prompts among which one is chosen: a look-up takes as long as comparisons with one or two more."""
PLAIN_PLACES = 1 << 9
"""The most places that plain Python fills, in half a millisecond; to read the compiled function from disk takes six."""


class Lookup(NamedTuple):
    """A table (M, n) in which lanes look up a row each, by its number.

    Attributes
    ----------
    rows : ndarray, shape (M, at least n)
        Those of `whole_rows`.
    columns : ndarray, shape (n, at least M)
        Those of `turned` where a number of a short column is picked, or chosen; and otherwise (0, 0).
    """

    rows: Array
    columns: Array


class ShortLookup(NamedTuple):
    """The same of numbers of 16 bits."""

    rows: NDArray[np.int16]
    columns: NDArray[np.int16]


LOOKUP = record_type(Lookup, F2, F2)
SHORT_LOOKUP = record_type(ShortLookup, S2, S2)


def lookup(table: Array) -> Lookup:
    """Make a table one to look up in."""
    return Lookup(whole_rows(table), short_columns(table))


def short_lookup(table: NDArray[np.int16]) -> ShortLookup:
    """Make a table of numbers of 16 bits one to look up in; it is picked from, or spread, and never chosen from."""
    columns = short_columns(table) if PICKED else np.empty((0, 0), dtype=np.int16)
    return ShortLookup(whole_rows(table), columns)


def short_columns(table: np.ndarray) -> np.ndarray:
    """Return the columns of a table (M, n) that is short enough to pick from or to choose among, and otherwise none."""
    if len(table) > (PICKED or FEW):
        return np.empty((0, 0), dtype=table.dtype)
    return turned(table) if PICKED else np.ascontiguousarray(table.T)


@stage
def read_rows(table, places, found):
    """Read the row of a table (M, n) at each lane's place, down the lane's column of found (at least n, WIDTH).

    Nothing is read from a short table, see `at_places`.
    """
    if table.columns.shape[0] == 0 and table.rows.shape[1] > 0:
        spread(table.rows, places, found)


@stage
def at_places(table, column, places, found):
    """Return the number that a column of a table (M, n) has at each lane's place; `found` is what `read_rows` has left."""
    if table.columns.shape[0] == 0:
        return load(found, column, 0)
    if PICKED:
        return pick(table.columns, column, places)
    chosen = reals(table.columns[column, 0])
    for m in range(1, table.columns.shape[1]):
        chosen = where(places == m, table.columns[column, m], chosen)
    return chosen


@stage
def read_short(table, places, found):
    """Read the row of a table of numbers of 16 bits (M, n) at each lane's place, down the lane's column of found."""
    if table.columns.shape[0] == 0:
        spread(table.rows, places, found)
        return
    for column in range(table.columns.shape[0]):
        store(pick(table.columns, column, places), found, column, 0)


@stage
def read_blocks(table, prompts, b, i, logits):
    """Fill logits (B, D, N) of group b, for the lanes from i on, from a table (M D, N) with D rows a prompt."""
    size, n, own = logits.shape[1], table.shape[1], load(prompts, b, i)
    if table.shape[0] > FEW * size:
        place = own * (size * n) + (lane_numbers() + i)
        for k in range(size):
            store(take(table, place + k * n), logits, b, k, i)
        return
    for k in range(size):
        found = load(table, k, i)
        for m in range(1, table.shape[0] // size):
            found = where(own == m, load(table, m * size + k, i), found)
        store(found, logits, b, k, i)


@stage
def add_to_blocks(covectors, prompts, b, i, step, table):
    """Add step times the covectors (B, D, N) of group b to the blocks of their prompts; see `read_blocks`."""
    size, n, own = covectors.shape[1], table.shape[1], load(prompts, b, i)
    if table.shape[0] > FEW * size:
        place = own * (size * n) + (lane_numbers() + i)
        for k in range(size):
            add_at(table, place + k * n, step * load(covectors, b, k, i))
        return
    for k in range(size):
        change = step * load(covectors, b, k, i)
        for m in range(table.shape[0] // size):
            x = load(table, m * size + k, i)
            store(where(own == m, x + change, x), table, m * size + k, i)


def alias_rows(law: Array) -> Array:
    """Return the alias table of a law (O,), shape (O, 2): for each place a threshold, and its alias.

    The whole part of u O, for a uniform u, is a place.  The place itself is chosen if the rest of u O is below its threshold, and
    otherwise its alias.  Places are paired in Vose's order.
    """
    thresholds, choices = np.empty(law.size), np.empty((law.size, 2), dtype=np.int64)
    fill = fill_aliases.function if law.size <= PLAIN_PLACES else fill_aliases
    fill(np.ascontiguousarray(law, dtype=np.float64)[None], thresholds, choices)
    return np.column_stack([thresholds, choices[:, 1]])


@function_value(numba.void(READONLY_F2, F1, I2))
def fill_aliases(laws, thresholds, choices):
    """Fill the alias tables of laws (S, V), in Vose's order, whose places are numbered through all laws; see `alias_rows`."""
    n_states, n_tokens = laws.shape
    small, large = np.empty(n_tokens, dtype=np.int64), np.empty(n_tokens, dtype=np.int64)
    for s in range(n_states):
        first, total, n_small, n_large = s * n_tokens, 0.0, 0, 0
        for v in range(n_tokens):
            total += laws[s, v]
        for v in range(n_tokens):
            edge = first + v
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


@stage
def choose_prompts(words, table, found):
    """Return the prompts that lanes of words choose by their alias table (M, 2); the rows found there (2, WIDTH) are room."""
    x = as_real(as_integer(words >> 11)) * (table.rows.shape[0] / 9007199254740992.0)
    place = as_integer(x)
    read_rows(table, place, found)
    threshold, other = at_places(table, 0, place, found), at_places(table, 1, place, found)
    return where(x - as_real(place) >= threshold, as_integer(other), place)
