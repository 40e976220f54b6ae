"""Kernels as tables, several in one book: what each gives a response, by the number of the multiset of its group's rewards."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F1, I1, I2, record_type, stage
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.simulate.strip import STRIP


class Book(NamedTuple):
    """Tables of advantages one after another.

    The advantage of estimator e at prompt m, over G, for value l in multiset i is advantages[starts[e] + steps[e] m + L i + l].

    Attributes
    ----------
    advantages : ndarray
    starts, steps : ndarray of int64, shape (E,)
        A step of 0 is that of a kernel which reads nothing of the prompt.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        See `AdvantageTable`.
    """

    advantages: Array
    starts: Integers
    steps: Integers
    ranks: Integers


BOOK = record_type(Book, F1, I1, I1, I2)


def make_book(table: AdvantageTable, group_size: int) -> Book:
    """Make a book of one table."""
    step = table.advantages[0].size if len(table.advantages) > 1 else 0
    return Book(table.advantages.reshape(-1) / group_size, np.zeros(1, dtype=np.int64), np.array([step]), table.ranks)


def join(books: list[Book]) -> Book:
    """Bind several books in one."""
    lengths = [len(book.advantages) for book in books]
    starts = [book.starts + sum(lengths[:i]) for i, book in enumerate(books)]
    return Book(
        advantages=np.concatenate([book.advantages for book in books]),
        starts=np.concatenate(starts),
        steps=np.concatenate([book.steps for book in books]),
        ranks=books[0].ranks,
    )


@stage
def find_multisets(outcomes, ranks, reached, places):
    """Find the number of each lane's multiset of reward values, from counts of outcomes (O, STRIP); `reached` is room.

    It is the sum over l of ranks[l] at n_1 + ... + n_l.
    """
    n_values = ranks.shape[0] + 1
    for j in range(STRIP):
        reached[j] = 0
        places[j] = 0
    for value in range(n_values - 1):
        for o in range(value, outcomes.shape[0], n_values):
            for j in range(STRIP):
                reached[j] += outcomes[o, j]
        for j in range(STRIP):
            places[j] += ranks[value, np.uintp(reached[j])]


@stage
def find_advantages(book, e, prompts, places, advantages):
    """Look up estimator e's advantages (L, STRIP), over G, of each reward value in the multisets with these numbers."""
    n_values = advantages.shape[0]
    start, step = book.starts[e], book.steps[e]
    for value in range(n_values):
        for j in range(STRIP):
            advantages[value, j] = book.advantages[np.uintp(start + step * prompts[j] + n_values * places[j] + value)]
