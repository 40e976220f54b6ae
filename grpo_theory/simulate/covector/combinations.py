"""The parts of estimates: each group's covector is a sum of covectors that estimators share, times numbers of their own."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F4, I1, I2, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, zeros


class Parts(NamedTuple):
    """The estimates of E estimators for V vectors of batches, of B groups each.

    The covector that estimator e gives group b is the sum over i of weights[v, b, columns[e, i]] times rows[v, b R + i], where
    a column of -1 leaves a part out.

    Attributes
    ----------
    rows : ndarray, shape (V, at least B R, D, WIDTH)
        Covectors, R for each group; their number is even, and one too many is 0.
    weights : ndarray, shape (V, B, C, WIDTH)
    columns : ndarray of int64, shape (E, R)
    owners : ndarray of int64, shape (C,)
        Of which part a column of the weights is, or -1 for one that is of none.
    lasts : ndarray of int64, shape (C,)
        The last part of the estimators that use a column.
    """

    rows: Array
    weights: Array
    columns: Integers
    owners: Integers
    lasts: Integers


PARTS = record_type(Parts, F4, F4, I2, I1, I1)


def make_rows(n_vectors: int, n_rows: int, n_logits: int) -> Array:
    """Make room for so many rows, or one more."""
    return zeros(n_vectors, n_rows + n_rows % 2, n_logits, WIDTH)


def make_parts(rows: Array, weights: Array, columns: Integers) -> Parts:
    """Return the parts of estimators that use these columns."""
    owners, lasts = np.full((2, weights.shape[2]), -1)
    for own in columns:
        (parts,) = np.nonzero(own >= 0)
        owners[own[parts]] = parts
        lasts[own[parts]] = np.maximum(lasts[own[parts]], parts[-1])
    return Parts(rows, weights, columns, owners, lasts)


def whole(rows: Array, batch_size: int) -> Parts:
    """Return estimates of one estimator that are one part each, (V, at least B, D, WIDTH), as they are."""
    weights = zeros(len(rows), batch_size, 1, WIDTH)
    weights[:] = 1.0
    return make_parts(rows, weights, np.zeros((1, 1), dtype=np.int64))


@stage
def put_together(parts, e, v, b, covector):
    """Fill in the covector (1, 1, D, WIDTH) that estimator e gives group b."""
    n_parts = parts.columns.shape[1]
    for d in range(parts.rows.shape[2]):
        total = reals(0.0)
        for i in range(n_parts):
            column = parts.columns[e, i]
            if column >= 0:
                total = total + load(parts.weights, v, b, column, 0) * load(parts.rows, v, b * n_parts + i, d, 0)
        store(total, covector, 0, 0, d, 0)
