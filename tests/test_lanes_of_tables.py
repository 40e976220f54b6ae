"""Tables that are read for all lanes at once, and tallies: compiled and as plain Python."""

import numba
import numpy as np
import pytest

from grpo_theory.compiler import lanes
from grpo_theory.compiler.lanes import (
    WIDTH,
    as_tally,
    as_those,
    load,
    pick,
    some,
    spread,
    store,
    tallies_of,
    tally_below,
    turned,
    whole_rows,
    zeros,
)

PLACES = np.random.default_rng(0).integers(0, 7, WIDTH)


@numba.njit
def spread_compiled(table, places, columns):
    spread(table, load(places, 0), columns)


@numba.njit
def pick_compiled(columns, places, found):
    for k in range(columns.shape[0]):
        store(pick(columns, k, load(places, 0)), found, k, 0)


@numba.njit
def tally_compiled(words, bound, found):
    tally = tallies_of(words)
    for g in range(words.shape[0]):
        tally = tally_below(tally, as_those(words, load(bound, 0)), words, g, 0)
    store(as_tally(tally), found, 0)


@numba.njit
def some_compiled(numbers):
    return some(load(numbers, 0) > 5)


@pytest.mark.parametrize("dtype", [np.float64, np.int16])
@pytest.mark.parametrize("n_rows", [1, 7, 16])
def test_numbers_of_a_short_column_are_picked(dtype, n_rows):
    table = np.random.default_rng(n_rows).integers(-(1 << 15), 1 << 15, (n_rows, 3)).astype(dtype)
    places = np.random.default_rng(2).integers(n_rows, size=WIDTH)
    columns = turned(table)
    np.testing.assert_array_equal(columns[:, :n_rows], table.T)
    made = [zeros(3, WIDTH, dtype=dtype) for _ in range(2)]
    pick_compiled(columns, places, made[0])
    for k in range(3):
        store(pick(columns, k, places), made[1], k, 0)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0].T, table[places])


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32, np.int16])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 8, 20])
def test_rows_become_columns(dtype, n_columns):
    table = np.arange(7 * n_columns).reshape(7, n_columns).astype(dtype)
    rows = whole_rows(table)
    assert rows.shape[1] * rows.itemsize % lanes.PIECE == 0
    np.testing.assert_array_equal(rows[:, :n_columns], table)
    made = [zeros(rows.shape[1], WIDTH, dtype=dtype) for _ in range(2)]
    spread_compiled(rows, PLACES, made[0])
    spread(rows, PLACES, made[1])
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0][:n_columns].T, table[PLACES])


@pytest.mark.parametrize("dtype", [np.int16, np.int8])
def test_words_below_a_bound_are_tallied(dtype):
    limits = np.iinfo(dtype)
    words = np.random.default_rng(1).integers(limits.min, limits.max, (200, WIDTH), dtype=dtype, endpoint=True)
    bound, found = words[::-1].mean(axis=0).astype(np.int16), np.zeros(WIDTH, dtype=np.uint16)
    bound[:2] = limits.min, limits.max
    tally_compiled(words, bound, found)
    np.testing.assert_array_equal(found, (words < bound).sum(axis=0))
    tally = tallies_of(words)
    for g in range(len(words)):
        tally = tally_below(tally, as_those(words, bound), words, g, 0)
    np.testing.assert_array_equal(found, as_tally(tally))
    assert tally.dtype == np.dtype(f"u{words.itemsize}")


@pytest.mark.parametrize("lane", [None, 0, 17, WIDTH - 1])
def test_a_lane_is_enough(lane):
    numbers = np.full(WIDTH, 5)
    if lane is not None:
        numbers[lane] = 6
    assert some_compiled(numbers) == some(numbers > 5) == (lane is not None)


@pytest.mark.parametrize("dtype", [np.float64, np.uint16])
def test_zeros_begin_a_line_of_the_cache(dtype):
    for shape in ((3,), (5, WIDTH), (0, 4), (2, 3, 128)):
        made = zeros(*shape, dtype=dtype)
        assert made.shape == shape
        assert made.dtype == dtype
        assert made.flags.c_contiguous
        assert made.size == 0 or made.ctypes.data % lanes.CACHE_LINE == 0
        assert not made.any()
