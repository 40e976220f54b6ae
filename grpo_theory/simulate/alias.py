"""Walker's alias tables: one uniform, one comparison, one draw from a finite law."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, I2, function_value


class AliasTable(NamedTuple):
    """Alias tables of several laws on O points.

    Of a uniform u, the whole part of u O is a place j, and the rest is compared with threshold[row, j]: below it the draw is
    choices[row, 2 j] = j, else choices[row, 2 j + 1].

    Attributes
    ----------
    threshold : ndarray, shape (rows, O)
    choices : ndarray of int64, shape (rows, 2 O)
    """

    threshold: Array
    choices: Integers


@function_value(numba.void(F2, F2, I2))
def fill_alias(probabilities, threshold, choices):
    """Fill the tables row by row (Vose's order)."""
    n_rows, n_points = probabilities.shape
    small = np.empty(n_points, dtype=np.int64)
    large = np.empty(n_points, dtype=np.int64)
    for row in range(n_rows):
        total = probabilities[row].sum()
        n_small = 0
        n_large = 0
        for j in range(n_points):
            threshold[row, j] = probabilities[row, j] * n_points / total
            choices[row, 2 * j] = j
            choices[row, 2 * j + 1] = j
            if threshold[row, j] < 1.0:
                small[n_small] = j
                n_small += 1
            else:
                large[n_large] = j
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            low, high = small[n_small], large[n_large - 1]
            choices[row, 2 * low + 1] = high
            threshold[row, high] -= 1.0 - threshold[row, low]
            if threshold[row, high] < 1.0:
                n_large -= 1
                small[n_small] = high
                n_small += 1
        # What is left is 1 up to rounding; a point of probability 0 is never left, because its deficit is 1.
        for i in range(n_large):
            threshold[row, large[i]] = 1.0
        for i in range(n_small):
            threshold[row, small[i]] = 1.0


def alias_table(probabilities: Array) -> AliasTable:
    """Build the tables of the laws in the rows of `probabilities`, shape (rows, O)."""
    probabilities = np.array(probabilities, order="C")
    n_rows, n_points = probabilities.shape
    table = AliasTable(np.empty((n_rows, n_points)), np.empty((n_rows, 2 * n_points), dtype=np.int64))
    fill_alias(probabilities, *table)
    return table


def alias_rows(law: Array) -> Array:
    """Return the table of a law (O,), place by place: its threshold, and what is chosen if that is reached, shape (O, 2)."""
    table = alias_table(law[None])
    return np.column_stack([table.threshold[0], table.choices[0, 1::2]])
