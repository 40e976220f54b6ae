"""Lanes: what the compiler makes of them and what numpy does, to the same bits."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from grpo_theory.compiler import OPTIONS
from grpo_theory.compiler.lanes import (
    RUN,
    WIDTH,
    add_at,
    are_finite,
    as_integer,
    as_real,
    as_short,
    bits_of,
    from_bits,
    lane_numbers,
    load,
    reals,
    repeat,
    root,
    shorts,
    store,
    sum_lanes,
    take,
    where,
)

NUMBERS = np.random.default_rng(1).normal(size=(4, 2 * WIDTH)) * 100.0
NUMBERS[0, :3] = 0.0, 1.5, -1.5
INTEGERS = NUMBERS.astype(np.int64)
SHORTS = (NUMBERS * 1e6).astype(np.int32)
WORDS = np.random.default_rng(2).integers(0, 1 << 64, (2, 2 * WIDTH), dtype=np.uint64)
PLACES = np.random.default_rng(3).permutation(NUMBERS.size)[: 2 * WIDTH].astype(np.int64)


def arithmetic(x, n, s, w, p, out):
    """Operators on numbers of two kinds, and on lanes and a number."""
    a, b = load(x, 1, 3), load(x, 2, 5)
    store(a + b, out, 0, 0)
    store(a - 2.0 * b, out, 1, 0)
    store(3.0 / (a * b), out, 2, 0)
    store((1.0 - a) / 7.0, out, 3, 0)
    store(root(a * a + 0.3), out, 9, 0)
    store(as_real(load(n, 0, 1) * 3 + load(n, 1, 2) - 5), out, 4, 0)
    store(as_real((load(n, 2, 0) & 255) << 3), out, 5, 0)
    store(as_real(load(n, 3, 7) >> 2), out, 6, 0)
    store(as_real(load(s, 3, 7) * load(s, 1, 1)), out, 7, 0)
    store(as_real(as_integer(load(w, 1, 4) >> 11)), out, 8, 0)


def sums(x, n, s, w, p, out):
    """Sums over the lanes, in the order of halves."""
    for i in range(4):
        out[i, 0] = sum_lanes(load(x, i, 3))
        out[4 + i, i] = sum_lanes(load(x, i, 0) * load(x, i, 5) - 1.0)


def comparisons(x, n, s, w, p, out):
    """Comparisons, choices, and counts of what is true."""
    a, b, m, k = load(x, 0, 0), load(x, 1, 0), load(n, 0, 0), load(s, 1, 1)
    store(where(a < b, a, b), out, 0, 0)
    store(where(a <= 0.0, 0.0, a), out, 1, 0)
    store(where(m > 3, b, 9.0), out, 2, 0)
    store(as_real(as_short(a >= b) + as_short(b >= a)), out, 3, 0)
    store(as_real(as_integer(m == 0) + 2 * as_integer(a == 1.5)), out, 4, 0)
    store(as_real(where(k < 0, 0, where(k > 1000, 1000, k))), out, 5, 0)


def conversions(x, n, s, w, p, out):
    """Conversions, bits, and lanes that are made of one number or of none."""
    a = load(x, 2, 2)
    store(as_real(as_integer(a)), out, 0, 0)
    store(as_real(as_short(a)), out, 1, 0)
    store(as_real(as_integer(load(s, 0, 0))), out, 2, 0)
    store(as_real(as_short(load(n, 0, 0))), out, 3, 0)
    store(from_bits(bits_of(a) + 1), out, 4, 0)
    store(reals(0.25) + as_real(shorts(3)), out, 5, 0)
    store(as_real(lane_numbers() * 2), out, 6, 0)


def places(x, n, s, w, p, out):
    """Numbers at places of their own."""
    at = load(p, 5)
    store(take(x, at), out, 0, 0)
    store(as_real(take(n, at)), out, 1, 0)
    add_at(out, 2 * out.shape[1] + at, load(x, 1, 0))


@pytest.mark.parametrize("function", [arithmetic, sums, comparisons, conversions, places])
def test_compiled_lanes_are_numpys(function):
    made = []
    for way in (numba.njit(**OPTIONS)(function), function):
        out = np.zeros((12, 2 * WIDTH))
        with np.errstate(over="ignore"):
            way(NUMBERS, INTEGERS, SHORTS, WORDS, PLACES, out)
        made.append(out)
    np.testing.assert_array_equal(*made)
    assert (made[0] != 0.0).any(axis=1).sum() >= 3


def copies(x, n, out):
    """A number written eight times, and past the end of a row."""
    repeat(1.5, out, 0, 3)
    repeat(x[1, 1], out, 0, out.shape[1] - 2)
    repeat(2, n, 1, 0)


def test_a_number_is_repeated_past_the_end_of_its_row():
    made = []
    for way in (numba.njit(**OPTIONS)(copies), copies):
        out, whole = np.zeros((2, 2 * WIDTH)), INTEGERS.copy()
        way(NUMBERS, whole, out)
        made.append((out, whole))
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)
    out, whole = made[0]
    assert [*np.flatnonzero(out == 1.5)] == [*range(3, 3 + RUN)]
    assert [*np.flatnonzero(out == NUMBERS[1, 1])][-RUN:] == [*range(2 * WIDTH - 2, 2 * WIDTH - 2 + RUN)]
    assert (whole[1, :RUN] == 2).all()


def looked_at(array, size):
    return are_finite(array, size)


@pytest.mark.parametrize("size", [0, 1, WIDTH - 1, WIDTH, 2 * WIDTH + 3, 4 * WIDTH])
@pytest.mark.parametrize("way", [numba.njit(**OPTIONS)(looked_at), looked_at])
def test_arrays_are_finite_up_to_the_first_number_that_is_not(size, way):
    array = np.arange(8.0 * WIDTH).reshape(4, 2 * WIDTH)
    array.flat[:3] = np.finfo(float).max, -np.finfo(float).max, 5e-324
    assert way(array, size)
    for place in range(size + 2):
        for wrong in (np.inf, -np.inf, np.nan):
            other = array.copy()
            other.flat[place] = wrong
            assert way(other, size) is (place >= size)


def test_a_minimum_keeps_what_is_not_a_number():
    x = np.full(WIDTH, np.nan)
    assert np.isnan(where(x < 0.0, 0.0, x)).all()


OUTSIDE = """
import numba, numpy as np
from grpo_theory.compiler import OPTIONS
from grpo_theory.compiler.lanes import WIDTH, add_at, are_finite, lane_numbers, load, reals, repeat, store, take
x = np.zeros((2, WIDTH))
tries = {
    "load": lambda x, i: store(load(x, 1, i), x, 0, 0),
    "store": lambda x, i: store(reals(1.0), x, 1, i),
    "take": lambda x, i: store(take(x, WIDTH * i + lane_numbers() + WIDTH), x, 0, 0),
    "add_at": lambda x, i: add_at(x, lane_numbers() - i, reals(1.0)),
    "repeat": lambda x, i: repeat(1.0, x, 1, WIDTH - 8 + i),
    "are_finite": lambda x, i: are_finite(x, 2 * WIDTH + i),
}
for name, function in tries.items():
    compiled = numba.njit(**OPTIONS)(function)
    compiled(x, 0)
    try:
        compiled(x, 1)
    except IndexError as error:
        print(name, error)
"""


def test_lanes_outside_of_their_array_are_found_where_bounds_are_checked():
    """Without the check they would read or write what is beside the array."""
    asked = [sys.executable, "-c", OUTSIDE]
    done = subprocess.run(asked, env=os.environ | {"NUMBA_BOUNDSCHECK": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:6] == [
        f"{name} lanes lie outside of their array" for name in ("load", "store", "take", "add_at", "repeat", "are_finite")
    ]
