"""Binary rewards: groups of one-token responses to the rows of their covectors, which all kernels share.

The advantages A_1 of the responses with the higher reward and A_0 of the others make the covector

    c = D h + A W,  with D = (A_1 - A_0) / G^2  and  A = (n_1 A_1 + n_0 A_0) / G^2,

whatever the kernel.  Here n_k of the responses are response k, and n_1k of these have the higher reward.  The contrast of the
group is ``h_k = G n_1k - n_1 n_k``, a whole number that is 0 where all responses are the same.  The sum of its scores is
``W_k = n_k - G pi_k``.  If a kernel's advantages have mean 0, A is 0 and D decides the covector alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F2, driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_integer, as_real, load, spread, store, tallies, where, whole_rows
from grpo_theory.problem.logits import SURE, complements
from grpo_theory.simulate.covector.combinations import COMBINATIONS
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, lookup, read_rows, read_short
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.validation import Array, Integers

LEAST = 1e-300
"""What a sure response lacks at least, so that its number has a sign."""


class Contrasts(NamedTuple):
    """What estimators give the rows, by the number n_0 of responses with the lower reward.

    Attributes
    ----------
    shared : Lookup
        A table (G + 1, n): the number n_1, and then the columns of the kernels that read nothing of the prompt.
    by_prompt : ndarray, shape (M (G + 1), m), or (0, 0)
        The columns of the others, at row m (G + 1) + n_0.
    """

    shared: Lookup
    by_prompt: Array

    @property
    def n_columns(self) -> int:
        """The columns of both."""
        return self.shared.rows.shape[1] + self.by_prompt.shape[1]


CONTRASTS = record_type(Contrasts, LOOKUP, F2)


def binary_weights(advantages: Array, values: Array) -> Array:
    """Return D and A of advantages (P, G + 1, 2) by n_0, shape (P, G + 1, 2); the rewards are the two values.

    In groups with one reward D is set to 0, because h is 0 there, so that kernels have more columns in common.  A is set to 0
    where it may be rounding alone: at most ``(G + 4) 2^-53 / G`` times the largest of |A_0|, |A_1| and the rewards.  A kernel
    that sums G rewards one after another loses at most (G - 1) 2^-53 of the largest, and a few more operations follow.
    """
    group_size = advantages.shape[1] - 1
    share, least = (group_size + 4.0) * 2.0**-53, float(np.abs(values).max()) / group_size
    low = np.arange(group_size + 1.0)
    high = group_size - low
    smaller, larger = (advantages / group_size).transpose(2, 0, 1)
    difference = np.where((low > 0) & (high > 0), larger - smaller, 0.0) / group_size
    mean = (low * smaller + high * larger) / group_size
    size = np.maximum(np.maximum(np.abs(smaller), np.abs(larger)), least)
    return np.stack([difference, np.where(np.abs(mean) <= share * size, 0.0, mean)], axis=-1)


def expected_numbers(probabilities: Array, group_size: int) -> Array:
    """Return the expected numbers G pi of the responses (M, K), less G for one that is sure: less than 0, and no difference."""
    missing = np.maximum(group_size * complements(probabilities), LEAST)
    return np.where(probabilities > SURE, -missing, group_size * probabilities)


class _Columns:
    """Columns of one table, each of a row of covectors; what several estimators have in common is there once."""

    def __init__(self, first: list[tuple[int, Array]]) -> None:
        self.found = first

    def place(self, part: int, column: Array) -> int:
        """Return where a column is, and append it if it is not there."""
        for i, (owner, known) in enumerate(self.found):
            if owner == part and np.array_equal(known, column):
                return i
        self.found.append((part, column))
        return len(self.found) - 1

    def table(self) -> Array:
        """Return the table, with whole rows."""
        return whole_rows(np.stack([column for _, column in self.found], axis=1)) if self.found else np.empty((0, 0))


def make_contrasts(weights: Sequence[Array]) -> tuple[Contrasts, Integers]:
    """Tabulate the `binary_weights` of estimators.

    Returns
    -------
    Contrasts
    columns : ndarray of int64, shape (E, R)
        As `Combinations` has them, those of `shared` before those of `by_prompt`; R is 1 if all kernels have mean 0, else 2.
    """
    group_size = weights[0].shape[1] - 1
    shared, by_prompt = _Columns([(-1, np.arange(group_size, -1.0, -1.0))]), _Columns([])
    places: list[list[tuple[bool, int]]] = []
    for one in weights:
        own = []
        for part in range(1 + bool(one[..., 1].any())):
            column = one[..., part]
            depends = bool((column != column[0]).any())
            own.append((depends, by_prompt.place(part, column.ravel()) if depends else shared.place(part, column[0])))
        places.append(own)
    tables = shared.table(), by_prompt.table()
    starts = {False: 0, True: tables[0].shape[1]}
    columns = np.full((len(weights), max(map(len, places))), -1)
    for e, found in enumerate(places):
        columns[e, : len(found)] = [starts[apart] + place for apart, place in found]
    return Contrasts(lookup(tables[0]), tables[1]), columns


@stage
def count_low(outcomes, i):
    """Return how many responses of a group have the lower reward, from counts of outcomes (2 K, LANES)."""
    found, o = tallies(0), 0
    while o < outcomes.shape[0]:  # a range would begin with a division
        found = found + load(outcomes, o, i)
        o += 2
    return found


@stage
def contrast(outcomes, i, group_size, n_high, rows, r):
    """Fill in row r with h, for the number n_1 of responses with the higher reward."""
    for k in range(rows.shape[1]):
        high = load(outcomes, 2 * k + 1, i)
        both = load(outcomes, 2 * k, i) + high
        store(group_size * as_real(high) - n_high * as_real(both), rows, r, k, 0)


@stage
def contrast_and_scores(outcomes, i, group_size, n_high, expected, prompts, found, rows):
    """Fill in row 0 with h and row 1 with W, from the `expected_numbers` (M, K) of the responses."""
    for k in range(rows.shape[1]):
        high = load(outcomes, 2 * k + 1, i)
        both = as_real(load(outcomes, 2 * k, i) + high)
        store(group_size * as_real(high) - n_high * both, rows, 0, k, 0)
        number = at_places(expected, k, prompts, found)
        store(where(number < 0.0, both - group_size, both) - number, rows, 1, k, 0)


@driver(numba.void(LOOKUP, CONTRASTS, COUNTS, F2, COMBINATIONS))
def fill_contrasts(expected, contrasts, counts, found, covectors):
    """Fill in the covectors of estimators whose kernels are tables; `found` (at least K, WIDTH) is room."""
    n_vectors, batch_size = covectors.rows.shape[0], counts.prompts.shape[1]
    n_rows, n_shared = covectors.columns.shape[1], contrasts.shared.rows.shape[1]
    group_size = float(contrasts.shared.rows.shape[0] - 1)
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        rows = covectors.rows[v]
        for b in range(batch_size):
            outcomes, weights = counts.outcomes[s, b], covectors.weights[v, b]
            prompts, low = load(counts.prompts, s, b, i), as_integer(count_low(outcomes, i))
            read_short(contrasts.shared, low, weights)
            n_high, r = load(weights, 0, 0), b * n_rows
            if n_rows == 1:
                contrast(outcomes, i, group_size, n_high, rows, r)
            else:
                read_rows(expected, prompts, found)
                contrast_and_scores(outcomes, i, group_size, n_high, expected, prompts, found, rows[r:])
            if contrasts.by_prompt.shape[0] > 0:
                spread(contrasts.by_prompt, prompts * contrasts.shared.rows.shape[0] + low, weights[n_shared:])
