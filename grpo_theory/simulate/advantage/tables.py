"""Kernels as tables, one or several: the advantage of each reward value by the number of the multiset of its group's rewards."""

from typing import NamedTuple

import numpy as np

from grpo_theory.compiler import F2, I1, I2, record_type, stage
from grpo_theory.compiler.lanes import as_integer, load, spread, take, whole_rows
from grpo_theory.exact.multisets import AdvantageTable
from grpo_theory.validation import Array, Integers


class Tables(NamedTuple):
    """Tables of advantages one after another.

    The advantage of estimator e at prompt m for value l in multiset i is advantages[starts[e] + steps[e] m + i, l].

    Attributes
    ----------
    advantages : ndarray, shape (n, at least L)
        Rows are those of `whole_rows`.
    starts, steps : ndarray of int64, shape (E,)
        A step of 0 is that of a kernel which reads nothing of the prompt.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        See `AdvantageTable`.
    """

    advantages: Array
    starts: Integers
    steps: Integers
    ranks: Integers


TABLES = record_type(Tables, F2, I1, I1, I2)
NO_TABLES = Tables(np.empty((0, 0)), np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty((0, 0), np.int64))


def make_tables(table: AdvantageTable, divisor: float) -> Tables:
    """Make one table ready to be looked up in, its advantages over a number."""
    n_prompts, n_multisets, n_values = table.advantages.shape
    numbers = table.advantages.reshape(-1, n_values) / divisor
    steps = np.array([n_multisets if n_prompts > 1 else 0])
    return Tables(whole_rows(numbers), np.zeros(1, dtype=np.int64), steps, table.ranks)


def join(several: list[Tables]) -> Tables:
    """Put several tables one after another."""
    lengths = [len(tables.advantages) for tables in several]
    starts = [tables.starts + sum(lengths[:i]) for i, tables in enumerate(several)]
    return Tables(
        advantages=np.concatenate([tables.advantages for tables in several]),
        starts=np.concatenate(starts),
        steps=np.concatenate([tables.steps for tables in several]),
        ranks=several[0].ranks,
    )


@stage
def multiset_numbers(counts, b, i, ranks):
    """Return the number of each lane's multiset of reward values, from the counts (B, O, N) of group b, for the lanes from i on.

    It is the sum over l of ranks[l] at n_1 + ... + n_l.
    """
    n_values, first = ranks.shape[0] + 1, load(counts, b, 0, i)
    reached, numbers = first - first, as_integer(first - first)
    for value in range(n_values - 1):
        o = value
        while o < counts.shape[1]:  # a range would begin with a division, which takes as long as half of the look-up
            reached = reached + load(counts, b, o, i)
            o += n_values
        rank = as_integer(reached)
        if value > 0:  # the first ranks are 0, 1, 2...
            rank = take(ranks, rank + value * ranks.shape[1])
        numbers = numbers + rank
    return numbers


@stage
def look_up_advantages(tables, e, prompts, multisets, advantages):
    """Fill in estimator e's advantages (at least L, WIDTH) of each reward value in the multisets with these numbers."""
    spread(tables.advantages, prompts * tables.steps[e] + (multisets + tables.starts[e]), advantages)
