"""Kernels as tables, several in one book: what each gives a response, by the number of the multiset of its group's rewards."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F2, I1, I2, record_type, stage
from grpo_theory.compiler.lanes import PICKED, as_integer, integers, load, pick, spread, store, take, tallies, whole_rows
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.simulate.draw.prompt_tables import short_columns


class Book(NamedTuple):
    """Tables of advantages one after another.

    The advantage of estimator e at prompt m, over G, for value l in multiset i is advantages[starts[e] + steps[e] m + i, l].

    Attributes
    ----------
    advantages : ndarray, shape (n, at least L)
        Rows are those of `whole_rows`.
    columns : ndarray, shape (E L, at least n/E), or (0, 0)
        Each table as `turned` has it, one after another, if all of them are short enough to be picked from.
    starts, steps : ndarray of int64, shape (E,)
        A step of 0 is that of a kernel which reads nothing of the prompt.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        See `AdvantageTable`.
    """

    advantages: Array
    columns: Array
    starts: Integers
    steps: Integers
    ranks: Integers


BOOK = record_type(Book, F2, F2, I1, I1, I2)


def make_book(table: AdvantageTable, group_size: int) -> Book:
    """Make a book of one table."""
    n_prompts, n_multisets, n_values = table.advantages.shape
    numbers = table.advantages.reshape(-1, n_values) / group_size
    columns = short_columns(numbers) if n_prompts == 1 and PICKED else np.empty((0, 0))
    steps = np.array([n_multisets if n_prompts > 1 else 0])
    return Book(whole_rows(numbers), columns, np.zeros(1, dtype=np.int64), steps, table.ranks)


def join(books: list[Book]) -> Book:
    """Bind several books in one."""
    lengths = [len(book.advantages) for book in books]
    short = all(len(book.columns) > 0 for book in books)
    starts = [book.starts + sum(lengths[:i]) for i, book in enumerate(books)]
    return Book(
        advantages=np.concatenate([book.advantages for book in books]),
        columns=np.concatenate([book.columns for book in books]) if short else np.empty((0, 0)),
        starts=np.concatenate(starts),
        steps=np.concatenate([book.steps for book in books]),
        ranks=books[0].ranks,
    )


@stage
def find_multisets(outcomes, s, b, i, ranks):
    """Return the number of each lane's multiset of reward values, from counts of outcomes (S, B, O, LANES), from lane i on.

    It is the sum over l of ranks[l] at n_1 + ... + n_l.
    """
    n_values = ranks.shape[0] + 1
    places, reached = integers(0), tallies(0)
    for value in range(n_values - 1):
        o = value
        while o < outcomes.shape[2]:  # a range would begin with a division, which takes as long as half of the look-up
            reached = reached + load(outcomes, s, b, o, i)
            o += n_values
        rank = as_integer(reached)
        if value > 0:  # the first ranks are 0, 1, 2...
            rank = take(ranks, rank + value * ranks.shape[1])
        places = places + rank
    return places


@stage
def find_advantages(book, e, prompts, places, advantages):
    """Look up estimator e's advantages (at least L, WIDTH), over G, of each reward value in the multisets with these numbers."""
    if book.columns.shape[0] == 0:
        spread(book.advantages, prompts * book.steps[e] + (places + book.starts[e]), advantages)
        return
    n_values = book.ranks.shape[0] + 1
    for value in range(n_values):
        store(pick(book.columns, e * n_values + value, places), advantages, value, 0)
