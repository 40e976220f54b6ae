"""A kernel as a table: its advantages for every number of responses with each reward value, worked out once.

The kernel reads only rewards (and what oracles know of the prompt), treats responses alike and sees each group by itself. An
advantage then depends on the response's own reward, and on how many responses of the group got each of the L values.
"""

import warnings
from functools import lru_cache
from math import nan
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact.classes import Looks
from grpo_theory.exact.exchangeability import check_alone, treats_alike
from grpo_theory.exact.multisets import (
    advantages_of,
    batch_of,
    class_advantages,
    count_multisets,
    members,
    multisets,
)

LARGEST_TABLE = 1 << 22
"""The most responses that a kernel is shown for the sake of a table: a tenth of a second."""


PromptFields = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
"""Values, standard deviations and optimal baselines of M prompts."""
UNREAD: PromptFields = ((nan,), (nan,), (nan,))
"""For a kernel that reads none of them."""


class AdvantageTable(NamedTuple):
    """Advantages by the counts n_1..n_L of the group's responses with each reward value.

    Attributes
    ----------
    advantages : ndarray, shape (P, n, L)
        The axes are the prompt (P = M, or 1 if the kernel reads nothing of the prompt), the multiset of reward values, and the
        value. The entry is 0 for a value that no response of the multiset has.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        The number of a multiset is sum_l ranks[l, n_1 + ... + n_l] over l < L, its rank among all in colexicographic order.
    """

    advantages: Array
    ranks: Integers


def multiset_ranks(n_values: int, group_size: int) -> Integers:
    """Return C(s + l - 1, l) for l = 1..L-1 and s = 0..G, shape (L - 1, G + 1)."""
    ranks = np.tile(np.arange(group_size + 1), (n_values - 1, 1))
    for level in range(1, n_values - 1):
        np.cumsum(ranks[level - 1], out=ranks[level])
    return ranks


def multiset_lines(counts: Integers, ranks: Integers) -> Integers:
    """Return the line of a table that each multiset (n, L) has, shape (n,).

    `multisets` lists in lexicographic order, and drivers find a line by its rank in colexicographic order.
    """
    lines = np.zeros(len(counts), dtype=np.int64)
    for level, reached in enumerate(np.cumsum(counts[:, :-1], axis=1).T):
        lines += ranks[level, reached]
    return lines


class TableSizeWarning(RuntimeWarning):
    """Warns that a kernel's table would be too large, so the kernel is called for every group, which is slower.

    Examples
    --------
    >>> import warnings, grpo_theory as gt
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", gt.exact.TableSizeWarning)  # slower is all right here
    ...     problem = gt.gallery.problem("graded")
    ...     found = gt.simulate_gradients(problem, problem.theta, "rloo", batch_size=2, group_size=4, replications=64, rng=0)
    """


def can_be_tabulated(advantage: Advantage, n_values: int, group_size: int, n_prompts: int) -> bool:
    """Whether a kernel may have a table, as far as it says what it reads, and whether that table is small enough."""
    size = _table_size(advantage, n_values, group_size, n_prompts)
    return size is not None and size <= LARGEST_TABLE


def _table_size(advantage: Advantage, n_values: int, group_size: int, n_prompts: int) -> int | None:
    """Return how many responses a kernel is shown for its table, or None if it reads more than a table knows."""
    if advantage.couples_groups or advantage.reads & {"squared_score_norms", "lengths"}:
        return None
    tables = n_prompts if advantage.reads & set(PROMPT_FIELDS) else 1
    return tables * count_multisets(n_values, group_size) * group_size


def warn_of_table(advantage: Advantage, n_values: int, group_size: int, n_prompts: int, *, stacklevel: int) -> None:
    """Warn that a kernel has no table, if that is because it would be too large."""
    size = _table_size(advantage, n_values, group_size, n_prompts)
    if size is not None and size > LARGEST_TABLE:
        warnings.warn(
            f"the kernel of estimator {advantage.name!r} is called for every group, which takes several times as long as to look "
            f"its advantages up. For {n_values} reward values and groups of {group_size} their table has {size:,} numbers, and "
            f"{LARGEST_TABLE:,} are allowed. With fewer values or smaller groups there is one",
            TableSizeWarning,
            stacklevel=stacklevel,
        )


@lru_cache(maxsize=64)
def advantage_table(
    advantage: Advantage, values: tuple[float, ...], group_size: int, prompt_fields: PromptFields
) -> AdvantageTable | None:
    """Return a kernel's table; made once, because many calls ask for the same.

    None if the kernel reads more than a table knows, if the table would be too large, or if responses are not treated alike.

    Parameters
    ----------
    advantage : Advantage
    values : tuple of float
        The L reward values, in rising order.
    group_size : int
    prompt_fields : tuple of three tuples of float
        Values, standard deviations and optimal baselines of M prompts, or `UNREAD` if the kernel reads none of them.

    Raises
    ------
    ValueError
        If the kernel does not see each group by itself, or leaves a value that is not finite.
    """
    n_values, fields = len(values), np.array(prompt_fields)
    if not can_be_tabulated(advantage, n_values, group_size, fields.shape[1]):
        return None
    counts = multisets(n_values, group_size)
    ranks = multiset_ranks(n_values, group_size)
    rows = fields.shape[1]
    unread = np.full((rows, n_values), nan)
    batch = batch_of(advantage, Looks(np.stack([np.tile(values, (rows, 1)), unread, unread]), fields), members(counts))
    advantages = advantages_of(advantage, batch)
    check_alone(advantage, batch, advantages)
    by_value = np.empty((rows * len(counts), n_values))
    spread = class_advantages(np.tile(counts, (rows, 1)), advantages, by_value)
    if spread > 0.0 or not treats_alike(advantage, batch, advantages):
        return None
    table = np.empty((rows, *counts.shape))
    table[:, multiset_lines(counts, ranks)] = by_value.reshape(table.shape)
    return AdvantageTable(table, ranks)
