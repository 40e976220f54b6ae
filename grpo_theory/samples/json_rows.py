"""Rows of JSON: one object a line, lists of objects, and documents that hold a table, broken lines named."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from grpo_theory.samples.column_values import kind_of

DEEPEST = 200
"""JSON that is nested deeper is refused: readers of it, which call themselves for each level, end with the process."""
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
LEVELS = np.zeros(256, dtype=np.int32)
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1
KEY = "key"
"""The column of the keys of a document that is an object of rows."""

Row = tuple[int, dict[str, Any]]


def table_of_block(block: bytes, schema: pa.Schema, done: int) -> pa.Table:
    """Return the columns of a schema from lines of JSON, of its types if they can be had; a broken line is named."""
    nested = any(pa.types.is_nested(type_) and kind_of(type_) == "other" for type_ in schema.types)  # may have new fields
    lines = block.split(b"\n")
    check_depth(lines, done)
    options = pyarrow.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if nested else "ignore", newlines_in_values=False
    )
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(block), pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1), options
        ).select(schema.names)
    except pa.ArrowInvalid:  # a line that is broken, or of other types: seen one by one
        return table_of_lines(lines, schema.names, done)


def check_depth(lines: list[bytes], done: int) -> None:
    """Raise if a line is nested too deep; brackets within strings do not count."""
    for index, line in enumerate(lines):
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            depth = int(np.cumsum(LEVELS[np.frombuffer(STRINGS.sub(b"", line), dtype=np.uint8)]).max(initial=0))
            if depth > DEEPEST:
                raise pa.ArrowInvalid(f"line {done + index + 1} is nested {depth:,} deep, and {DEEPEST} is the most that is read")


def table_of_lines(lines: list[bytes], names: list[str] | None, done: int) -> pa.Table:
    """Return lines of JSON as a table; all columns if None are named."""
    check_depth(lines, done)
    rows = [row for _, row in rows_of_lines(lines, done)]
    keys = list(dict.fromkeys(key for row in rows for key in row)) if names is None else names
    return pa.table({key: column_of([row.get(key) for row in rows]) for key in keys})


def column_of(values: list[Any]) -> pa.Array:
    """Return values as a column; of mixed types as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
        return pa.array([one if one is None or isinstance(one, str) else json.dumps(one, sort_keys=True) for one in whole])


def rows_of_lines(lines: Sequence[bytes], done: int) -> Iterator[Row]:
    """Yield the objects of lines with the lines' numbers, one a line or a list of them; a broken line is named."""
    for index, line in enumerate(lines):
        if line.strip():
            where = f"line {done + index + 1}"
            try:
                found = json.loads(line)
            except ValueError as error:
                raise pa.ArrowInvalid(f"{where} is broken, {error}") from None
            rows = found if isinstance(found, list) and found else [found]
            if not all(isinstance(row, dict) for row in rows):
                raise pa.ArrowInvalid(f"{where} is not an object, {{...}}, and no list of objects: write one object per line")
            yield from ((done + index + 1, row) for row in rows)


def is_row(line: bytes) -> bool:
    """Return whether a line is an object, or a list of objects, that is not nested too deep."""
    try:
        check_depth([line], 0)
        return bool(list(rows_of_lines([line], 0)))
    except pa.ArrowInvalid:
        return False


def document_of(text: bytes) -> list[Row] | None:
    """Return the rows of a JSON document that is no object a line; None if the text is none."""
    check_depth([text], 0)
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if isinstance(found, list):
        numbered = [(place + 1, row) for place, part in enumerate(found) for row in (part if isinstance(part, list) else [part])]
        if not all(isinstance(row, dict) for _, row in numbered):
            raise pa.ArrowInvalid("it is a list of other things than objects, {...}")
        return numbered
    return _rows_of_object(found) if isinstance(found, dict) else None


def _rows_of_object(found: dict[str, Any]) -> list[Row]:
    """Return the rows of an object: a table with names and data, columns by number, rows or lists by key, or one row."""
    columns, data, values = found.get("columns"), found.get("data"), list(found.values())
    if isinstance(columns, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [(place + 1, dict(zip(map(str, columns), row, strict=False))) for place, row in enumerate(data)]
    if len(values) > 1 and all(isinstance(one, dict) for one in values):
        if all(one.keys() == values[0].keys() and all(key.isdigit() for key in one) for one in values) and values[0]:
            return [(place + 1, {name: found[name][key] for name in found}) for place, key in enumerate(values[0])]
        if set.intersection(*(set(one) for one in values)):
            return [(place + 1, {KEY: key, **row}) for place, (key, row) in enumerate(found.items())]
    if len(values) > 1 and all(isinstance(one, list) and one for one in values):
        flat = list(chain.from_iterable(values))
        if all(isinstance(part, dict) for part in flat):
            return [(place + 1, {KEY: key, **row}) for place, (key, rows) in enumerate(found.items()) for row in rows]
        if all(isinstance(part, bool | int | float) for part in flat) and not _like_columns(found):
            return [(place + 1, {KEY: key, "rewards": row}) for place, (key, row) in enumerate(found.items())]
    return [(1, found)]


def _like_columns(found: dict[str, Any]) -> bool:
    """Return whether keys are names of columns, such as reward and step, and no prompts."""
    return any(re.search(r"reward|score|step|advantage|prompt", key.lower()) for key in found)
