"""A kernel as a table: its advantages for every number of responses with each reward value, worked out once.

A kernel that reads only rewards (and what oracles know of the prompt), treats responses alike and sees each group by itself
gives a response an advantage that depends on its own reward and on how many responses of the group got each of the L values.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact.classes import Looks
from grpo_theory.exact.multisets import (
    advantages_of,
    batch_of,
    check_alone,
    class_advantages,
    count_multisets,
    members,
    multisets,
    treats_alike,
)

LARGEST_TABLE = 1 << 22
"""The most responses that a kernel is shown for the sake of a table: a tenth of a second."""


class AdvantageTable(NamedTuple):
    """Advantages by the counts n_1..n_L of the group's responses with each reward value.

    Attributes
    ----------
    advantages : ndarray, shape (P, n, L)
        For prompt (P = M, or 1 if the kernel reads nothing of the prompt), multiset of reward values and value; 0 for a value
        that no response of the multiset has.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        The number of a multiset is sum_l ranks[l, n_1 + ... + n_l] over l < L, its place among all in colexicographic order.
    """

    advantages: Array
    ranks: Integers


def multiset_ranks(n_values: int, group_size: int) -> Integers:
    """Return C(s + l - 1, l) for l = 1..L-1 and s = 0..G, shape (L - 1, G + 1)."""
    ranks = np.tile(np.arange(group_size + 1), (n_values - 1, 1))
    for level in range(1, n_values - 1):
        np.cumsum(ranks[level - 1], out=ranks[level])
    return ranks


def can_be_tabulated(advantage: Advantage, n_values: int, group_size: int, n_prompts: int) -> bool:
    """Whether a kernel may have a table, as far as it says what it reads, and whether that table is small enough."""
    if advantage.couples_groups or advantage.reads & {"squared_score_norms", "lengths"}:
        return False
    tables = n_prompts if advantage.reads & set(PROMPT_FIELDS) else 1
    return tables * count_multisets(n_values, group_size) * group_size <= LARGEST_TABLE


def advantage_table(
    advantage: Advantage, values: Array, group_size: int, prompt_fields: tuple[Array, Array, Array]
) -> AdvantageTable | None:
    """Return a kernel's table, or None if it does not treat responses alike.

    Parameters
    ----------
    advantage : Advantage
        One that `can_be_tabulated`.
    values : ndarray, shape (L,)
        The reward values, in rising order.
    group_size : int
    prompt_fields : tuple of three ndarrays, shape (M,)
        Values, standard deviations and optimal baselines; read only if the kernel reads one of them.

    Raises
    ------
    ValueError
        If the kernel does not see each group by itself, or leaves a value that is not finite.
    """
    counts = multisets(values.size, group_size)
    ranks = multiset_ranks(values.size, group_size)
    places = np.zeros(len(counts), dtype=np.int64)
    for level, reached in enumerate(np.cumsum(counts[:, :-1], axis=1).T):
        places += ranks[level, reached]
    rows = len(prompt_fields[0]) if advantage.reads & set(PROMPT_FIELDS) else 1
    unread = np.full((rows, values.size), np.nan)
    looks = Looks(np.stack([np.tile(values, (rows, 1)), unread, unread]), np.stack([field[:rows] for field in prompt_fields]))
    batch = batch_of(advantage, looks, members(counts))
    advantages = advantages_of(advantage, batch)
    check_alone(advantage, batch, advantages)
    by_value = np.empty((rows * len(counts), values.size))
    spread = class_advantages(np.tile(counts, (rows, 1)), advantages, by_value)
    if spread > 0.0 or not treats_alike(advantage, batch, advantages):
        return None
    found = np.empty((rows, *counts.shape))
    found[:, places] = by_value.reshape(found.shape)
    return AdvantageTable(found, ranks)
