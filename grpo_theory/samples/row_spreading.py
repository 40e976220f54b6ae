"""One row per response from rows that hold several in lists, or fields within objects."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from grpo_theory.samples.column_choice import known
from grpo_theory.samples.json_rows import column_of
from grpo_theory.samples.log_fields import ROW, follows, parts_of, spread, value_at
from grpo_theory.samples.log_file import BROKEN, LogFile
from grpo_theory.user_text import listed, printable


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
        So many rows a table, about.
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
