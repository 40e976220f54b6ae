"""Lanes in plain Python: what they hold, how they are read and written, and what is computed of them.

Each function is the twin of a compiled one, to the same bits; the tests run both.
"""

import math
from typing import Any

import numpy as np

from grpo_theory.compiler.options import PROCESSOR

WIDTH = 32
"""The lanes of a value: several of a processor's vectors, because one alone would wait for its own results."""

PIECE = 16
"""The bytes of a row that `spread` reads at once."""

CACHE_LINE = 64
"""The bytes that caches hold at once: as many as the longest vectors have."""

RUN = 8
"""The numbers that `repeat` writes: one of the longest vectors."""

PICKED = 16 if {"+avx512f", "+avx512bw"} <= PROCESSOR else 0
"""The numbers that `pick` picks from, held in registers; 0 where the processor has no instruction for it."""


def zeros(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Make an array of zeros whose vectors lie in one line of a cache each, which numpy's own seldom do."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, dtype=np.uint8)
    first = -memory.__array_interface__["data"][0] % CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)


def load(array: np.ndarray, *index: Any) -> np.ndarray:
    """Return the numbers of an array from an index on, along its last axis; there is an index for each axis."""
    *row, first = index
    return array[tuple(row)][first : first + WIDTH].copy()


def store(lanes: Any, array: np.ndarray, *index: Any) -> None:
    """Write lanes to an array from an index on, along its last axis."""
    *row, first = index
    array[tuple(row)][first : first + WIDTH] = lanes


def take(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the number of an array at each lane's index, counted through the array as if it had one axis."""
    return array.reshape(-1)[indices]


def spread(table: np.ndarray, indices: np.ndarray, columns: np.ndarray) -> None:
    """Write the row of a table (n, rows) at each lane's index down the lane's column, in columns (at least rows, WIDTH).

    Rows are as long as `whole_rows` makes them.  They are read in pieces and turned round in registers, which takes a fraction of
    the time of so many calls of `take`.
    """
    columns[: table.shape[1]] = table[indices].T


def pick(columns: np.ndarray, column: int, indices: np.ndarray) -> np.ndarray:
    """Return the number of a column at each lane's index: one of a table's that was turned by `turned`.

    Where `PICKED` is above 0, the column is in registers while one instruction picks for eight lanes or more.
    """
    return columns[column][indices]


def turned(table: np.ndarray) -> np.ndarray:
    """Return a table (n, rows) for `pick`: its columns one after another, each filled up with zeros."""
    width = max(PICKED, CACHE_LINE // table.itemsize, len(table))
    return np.ascontiguousarray(np.pad(table.T, ((0, 0), (0, width - len(table)))))


def whole_rows(table: np.ndarray) -> np.ndarray:
    """Return a table (n, rows) for `spread`: with as many columns more, of zeros, as make its rows a multiple of 16 bytes."""
    more = -table.shape[1] % (PIECE // table.itemsize)
    return np.ascontiguousarray(np.pad(table, ((0, 0), (0, more))))


def repeat(number: Any, array: np.ndarray, i: int, j: int) -> None:
    """Write a number `RUN` times to an array (n, m) from an index on, past the ends of rows but not of the array."""
    first = i * array.shape[1] + j
    array.reshape(-1)[first : first + RUN] = number


def are_finite(array: np.ndarray, size: int) -> bool:
    """Say whether the first numbers of an array, so many, are finite."""
    return bool(np.isfinite(array.reshape(-1)[:size]).all())


def add_at(array: np.ndarray, indices: np.ndarray, lanes: np.ndarray) -> None:
    """Add lanes to an array at each lane's index, counted as for `take`; no two lanes have the same index."""
    array.reshape(-1)[indices] += lanes


def where(mask: np.ndarray, yes: Any, no: Any) -> np.ndarray:
    """Return `yes` in the lanes where the mask is true, and `no` in the others."""
    return np.where(mask, yes, no)


def as_real(lanes: np.ndarray) -> np.ndarray:
    """Return float64 lanes."""
    return lanes.astype(np.float64)


def as_integer(lanes: np.ndarray) -> np.ndarray:
    """Return int64 lanes; of float64 lanes the whole part."""
    return lanes.astype(np.int64)


def as_short(lanes: np.ndarray) -> np.ndarray:
    """Return int32 lanes; of float64 lanes the whole part."""
    return lanes.astype(np.int32)


def as_tally(lanes: np.ndarray) -> np.ndarray:
    """Return uint16 lanes; 1 where truth values are true."""
    return lanes.astype(np.uint16)


def as_those(words: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return int16 lanes as numbers of the type that an array has, int16 or int8."""
    return lanes.astype(words.dtype)


def tallies_of(words: np.ndarray) -> np.ndarray:
    """Return tallies that are all 0, each of as many bits as the numbers of an array: int16 or int8."""
    return np.zeros(WIDTH, dtype=f"u{words.itemsize}")


def tally_below(tally: np.ndarray, bound: np.ndarray, words: np.ndarray, *index: Any) -> np.ndarray:
    """Return tallies, one more where the lanes of an array from an index on are below others: all of int16, or all of int8."""
    return tally + (load(words, *index) < bound)


def root(lanes: np.ndarray) -> np.ndarray:
    """Return the square roots of float64 lanes."""
    return np.sqrt(lanes)


def some(mask: np.ndarray) -> bool:
    """Say whether the mask is true in any lane."""
    return bool(mask.any())


def sum_lanes(lanes: np.ndarray) -> float:
    """Return the sum of float64 lanes: halves are added to one another until one number is left."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def bits_of(lanes: np.ndarray) -> np.ndarray:
    """Return the bits of float64 lanes as int64 lanes."""
    return lanes.view(np.int64)


def from_bits(lanes: np.ndarray) -> np.ndarray:
    """Return float64 lanes from their bits."""
    return lanes.view(np.float64)


def reals(number: float) -> np.ndarray:
    """Return float64 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.float64)


def integers(number: int) -> np.ndarray:
    """Return int64 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.int64)


def shorts(number: int) -> np.ndarray:
    """Return int32 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.int32)


def tallies(number: int) -> np.ndarray:
    """Return uint16 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.uint16)


def lane_numbers() -> np.ndarray:
    """Return int64 lanes from 0 to 31."""
    return np.arange(WIDTH, dtype=np.int64)
