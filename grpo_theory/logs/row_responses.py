"""One row per response from rows that hold several, in lists or as counts of successes, and the rewards of rows."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from grpo_theory.logs.column_names import known
from grpo_theory.logs.column_values import numbers, refuse_rows
from grpo_theory.logs.log_file import BROKEN, LogFile
from grpo_theory.logs.log_opening import Columns
from grpo_theory.logs.nested_rows import ROW, column_of, message, parts_of, value_at
from grpo_theory.logs.reward_choice import Counted
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import Array, Flags, Integers

WHOLE = 0.1
"""A rate times the number of responses may be so far from a whole number: rates are rounded."""


def response_tables(file: LogFile, names: list[str], lead: str, rows: int) -> Iterator[pa.Table]:
    """Yield tables with one row per response and the columns of these paths; `lead` is the path whose lists part the rows."""
    flat = not file.document and ROW not in names and all(name in file.kinds or name in file.constants for name in names)
    if flat and file.fields[lead].kind not in ("list", "texts"):
        yield from file.batches(names, rows)
        return
    missing = [name for name in names if name != ROW and not known(name, file.fields)]
    if missing:
        raise ValueError(
            f"{printable(file.path)} has no column {listed(missing)}, as the files before it do; "
            f"found {listed(file.row_fields, missing)}. Files are chosen by where={{'path': ...}} (--where path=...)"
        )
    yield from spread_rows(file, lead, levels_of(file, names, lead), rows)


def levels_of(file: LogFile, names: list[str], lead: str) -> dict[str, int]:
    """Return through how many levels of lists each path goes along with the rewards, by the first rows."""
    of_path = {name for name in names if name in file.constants and name not in file.kinds}
    paths = [name for name in names if name != ROW and name not in of_path]
    values = {path: [value_at(row, parts_of(path, file.kinds)) for row in file.sample] for path in paths}
    some = [place for place, one in enumerate(values[lead]) if one is not None]
    rewards = [values[lead][place] for place in some]
    levels = {path: follows([values[path][place] for place in some], rewards) for path in paths}
    return levels | dict.fromkeys(of_path, 0)


def spread_rows(file: LogFile, reward: str, levels: Mapping[str, int], rows: int) -> Iterator[pa.Table]:
    """Yield tables with one row per response.

    Parameters
    ----------
    file : LogFile
    reward : str
        The path that parts the rows.
    levels : mapping of str to int
        All paths that are read, and through how many levels of lists each goes along with the reward.
    rows : int
        About how many rows a table has.
    """
    fixed = {path: file.constants[path] for path in levels if path in file.constants and path not in file.kinds}
    parts = {path: parts_of(path, file.kinds) for path in levels if path not in fixed}
    held: list[dict[str, Any]] = []
    try:
        for number, row in file.rows(sorted({one[0] for one in parts.values()} & file.kinds.keys())):
            held += spread({path: value_at(row, one) for path, one in parts.items()} | fixed, reward, levels, str(number))
            if len(held) >= rows:
                yield _table(held, levels)
                held = []
        if held:
            yield _table(held, levels)
    except BROKEN as error:
        file.refuse(error)


def _table(held: list[dict[str, Any]], levels: Mapping[str, int]) -> pa.Table:
    return pa.table({path: column_of([one.get(path) for one in held]) for path in dict.fromkeys((*levels, ROW))})


def summed_rewards(table: pa.Table, columns: Columns) -> tuple[Array, Flags, Flags]:
    """Return the weighted sums of the reward's columns, which rows have none, and which lack a part, which counts for 0."""
    parts = np.stack([numbers(table[name], f"reward ({name})") for name in columns.reward])
    missing = np.isnan(parts)
    weights = np.stack([np.asarray(_weights(table, one)) for one in columns.reward.values()])
    # Sums that overflow, or are inf - inf, are refused by the caller with the numbers of their rows.
    with np.errstate(over="ignore", invalid="ignore"):
        held = np.where(missing, 0.0, parts)
        rewards = weights @ held if weights.ndim == 1 else (weights * held).sum(axis=0)
    rewards = np.where(np.isinf(parts).any(axis=0), np.inf, rewards)
    none = np.asarray(missing.all(axis=0))
    return np.where(none, 0.0, rewards), none, np.asarray(missing.any(axis=0)) & ~none


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


def follows(values: Sequence[Any], rewards: Sequence[Any]) -> int:
    """Return through how many levels the lists of a field are as long as those of the rewards, in all rows."""
    level = 0
    while rewards and any(one is not None for one in values) and all(isinstance(one, list) for one in rewards):
        pairs = list(zip(values, rewards, strict=True))
        if any(one is not None and (not isinstance(one, list) or len(one) != len(other)) for one, other in pairs):
            break
        if any(message(part) for one in values if one is not None for part in one):
            break
        pairs = [(part, other) for one, own in pairs if one is not None for part, other in zip(one, own, strict=True)]
        level, values, rewards = level + 1, [one for one, _ in pairs], [other for _, other in pairs]
    return level


def spread(values: Mapping[str, Any], reward: str, levels: Mapping[str, int], row: str) -> Iterator[dict[str, Any]]:
    """Yield one row per response from values whose reward is lists: lists beside it go along, all else is repeated.

    Parameters
    ----------
    values : mapping
        By path.
    reward : str
        The path whose lists part the row.
    levels : mapping of str to int
        Through how many levels each field goes along.
    row : str
        The number of the row, to which the places in all lists but the innermost are added.
    """
    rewards = values[reward]
    if not isinstance(rewards, list):
        yield {**values, ROW: row}
        return
    innermost = not any(isinstance(one, list) for one in rewards)
    along = [path for path, level in levels.items() if level > 0 and values[path] is not None]
    for path in along:
        if not isinstance(values[path], list) or len(values[path]) != len(rewards):
            held = len(values[path]) if isinstance(values[path], list) else 1
            raise ValueError(
                f"row {row} has {held} of {printable(path)} beside {len(rewards)} of {printable(reward)}: lists that belong "
                "together must be of equal length"
            )
    fewer = {path: level - 1 for path, level in levels.items()}
    for place, one in enumerate(rewards):
        part = {**values, **{path: values[path][place] for path in along}, reward: one}
        yield from spread(part, reward, fewer, row if innermost else f"{row}.{place + 1}")
