"""Rewards of a table's rows: weighted sums of columns, and responses that are counted."""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.samples.column_choice import Columns, Counted
from grpo_theory.samples.column_values import numbers, refuse_rows

Unscored = Literal["error", "leave", "zero"]
WHOLE = 0.1
"""A rate times the number of responses may be so far from a whole number: rates are rounded."""


def summed_rewards(table: pa.Table, columns: Columns) -> tuple[Array, Flags]:
    """Return the weighted sums of the reward's columns, and which rows have none; a part counts for 0 where another is there."""
    parts = np.stack([numbers(table[name], f"reward ({name})") for name in columns.reward])
    missing = np.isnan(parts)
    weights = np.stack([np.asarray(_weights(table, one)) for one in columns.reward.values()])
    # Sums that overflow, or are inf - inf, are refused by the caller with the numbers of their rows.
    with np.errstate(over="ignore", invalid="ignore"):
        held = np.where(missing, 0.0, parts)
        rewards = weights @ held if weights.ndim == 1 else (weights * held).sum(axis=0)
    rewards = np.where(np.isinf(parts).any(axis=0), np.inf, rewards)
    none = np.asarray(missing.all(axis=0))
    return np.where(none, 0.0, rewards), none


def _weights(table: pa.Table, weight: float | str) -> Array | float:
    return numbers(table[weight], f"weight ({weight})") if isinstance(weight, str) else weight


def counted_rewards(table: pa.Table, counted: Counted, path: Path, before: Integers) -> tuple[pa.Table, Array]:
    """Return a table with one row per response, and rewards 1 and 0, from numbers of successes."""
    name, total = counted.successes, counted.total
    sizes = np.full(table.num_rows, float(total)) if isinstance(total, int) else numbers(table[total], str(total))
    wanted = "a whole number of responses, of at least 1"
    if isinstance(total, str):
        refuse_rows(~((sizes >= 1.0) & (sizes == np.floor(sizes)) & (sizes < 2**31)), table[total], total, path, before, wanted)
    found = numbers(table[name], name)
    successes = np.round(found * sizes) if counted.rate else found
    gap = np.abs(successes - found * sizes) if counted.rate else np.abs(successes - np.round(found))
    bad = ~(np.isfinite(successes) & (successes >= 0.0) & (successes <= sizes) & (gap <= (WHOLE if counted.rate else 0.0)))
    of = f"the {total} responses" if isinstance(total, int) else f"the responses ({total})"
    refuse_rows(bad, table[name], name, path, before, f"{'a share' if counted.rate else 'a number'} of {of}")
    rows = np.repeat(np.arange(table.num_rows), sizes.astype(np.int64))
    place = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes.astype(np.int64))
    return table.take(pa.array(rows)), (place < successes[rows]).astype(np.float64)
