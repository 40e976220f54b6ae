"""Covectors as linear combinations: each is a sum of covectors that estimators share, times numbers of their own."""

from typing import NamedTuple

import numpy as np

from grpo_theory.compiler import F4, I1, I2, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, zeros
from grpo_theory.validation import Array, Integers


class Combinations(NamedTuple):
    """The estimates of E estimators for V vectors of batches, of B groups each.

    The covector that estimator e gives group b is the sum over i of ``weights[v, b, columns[e, i]] * rows[v, b R + i]``.  A
    column of -1 leaves a row out.

    Attributes
    ----------
    rows : ndarray, shape (V, at least B R, D, WIDTH)
        Covectors, R for each group; their number is even, and one too many is 0.
    weights : ndarray, shape (V, B, C, WIDTH)
    columns : ndarray of int64, shape (E, R)
    owners : ndarray of int64, shape (C,)
        For each column of the weights, which of a group's R rows it belongs to; -1 if it belongs to none.
    lasts : ndarray of int64, shape (C,)
        The last row of the estimators that use a column.
    """

    rows: Array
    weights: Array
    columns: Integers
    owners: Integers
    lasts: Integers


COMBINATIONS = record_type(Combinations, F4, F4, I2, I1, I1)


def make_rows(*shape: int) -> Array:
    """Make room for rows (..., V, n, D, WIDTH) of this shape but for the last, or for one more than n."""
    *leading, n_rows, n_logits = shape
    return zeros(*leading, n_rows + n_rows % 2, n_logits, WIDTH)


def combine(rows: Array, weights: Array, columns: Integers) -> Combinations:
    """Return the combinations of estimators that use these columns."""
    owners, lasts = np.full((2, weights.shape[2]), -1)
    for own in columns:
        (used,) = np.nonzero(own >= 0)
        owners[own[used]] = used
        lasts[own[used]] = np.maximum(lasts[own[used]], used[-1])
    return Combinations(rows, weights, columns, owners, lasts)


def alone(rows: Array, batch_size: int) -> Combinations:
    """Return covectors (V, at least B, D, WIDTH) of one estimator as they are."""
    weights = zeros(len(rows), batch_size, 1, WIDTH)
    weights[:] = 1.0
    return combine(rows, weights, np.zeros((1, 1), dtype=np.int64))


@stage
def add_combination(rows, weights, columns, e, b, covector):
    """Fill in the covector (1, D, WIDTH) that estimator e gives group b, from one vector's rows and weights."""
    n_rows = columns.shape[1]
    for d in range(rows.shape[1]):
        total = reals(0.0)
        for i in range(n_rows):
            column = columns[e, i]
            if column >= 0:
                total = total + load(weights, b, column, 0) * load(rows, b * n_rows + i, d, 0)
        store(total, covector, 0, d, 0)
