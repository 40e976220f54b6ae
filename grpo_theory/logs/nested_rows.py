"""Rows of objects and lists: read from JSON, broken lines named, and the fields that paths lead to in them."""

import json
import math
import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from grpo_theory.logs.column_values import kind_of

DEEPEST = 200
"""JSON that is nested deeper is refused: readers of it, which call themselves for each level, end with the process."""
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
LEVELS = np.zeros(256, dtype=np.int32)
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1
KEY = "key"
"""The column of the keys of a document that is an object of rows."""

NestedRow = tuple[int, dict[str, Any]]


SUMMARIES: dict[str, Callable[[list[float]], float]] = {"sum": math.fsum, "mean": fmean, "min": min, "max": max}
"""What the last part of a path may make of a list of numbers."""
BUT_LAST = ":-1"
"""The part of a path that takes a list without its last."""
DEEPEST_FIELD = 6
"""Fields that lie deeper in a row are not looked for."""
ROW = "row"
"""The column that numbers the rows of the file, and the lists in them that hold several responses."""


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


def rows_of_lines(lines: Sequence[bytes], done: int) -> Iterator[NestedRow]:
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


def may_be_document(first: Sequence[bytes], keyed: bool) -> bool:
    """Return whether a file with these first lines may be one JSON document, and not an object or a list of objects a line.

    An object in the only line is one row, unless a file of this ending may hold a table by keys (`keyed`).
    """
    lines = [line for line in first if line.strip()]
    try:
        alone = json.loads(lines[0]) if lines else {}
    except (ValueError, RecursionError):
        return lines[0].lstrip()[:1] in (b"[", b"{")
    if isinstance(alone, dict):
        return len(lines) == 1 and (keyed or {"columns", "data"} <= alone.keys())
    return len(lines) == 1 if isinstance(alone, list) else False


def document_of(text: bytes) -> list[NestedRow] | None:
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


def _rows_of_object(found: dict[str, Any]) -> list[NestedRow]:
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


class Field(NamedTuple):
    """What a path leads to: number, list (of numbers), text, texts, messages or other; and the lists of objects on the way."""

    kind: str
    lists: tuple[str, ...] = ()


def fields_of(records: Sequence[Mapping[str, Any]], inside: bool = True) -> dict[str, Field]:
    """Return the fields of rows by their paths: those at the top first, those within objects and lists of objects behind them."""
    found: dict[str, Field] = {}
    level: list[tuple[str, tuple[str, ...], list[Mapping[str, Any]]]] = [("", (), list(records))]
    for _ in range(DEEPEST_FIELD if inside else 1):
        below = []
        for prefix, lists, rows in level:
            for key in dict.fromkeys(key for row in rows for key in row):
                path, values = f"{prefix}{key}", [row[key] for row in rows if row.get(key) is not None]
                if values and isinstance(key, str):
                    found[path] = Field(_kind(values), lists)
                    objects, many = _objects(values)
                    if objects:
                        below.append((f"{path}.", (*lists, path) if many else lists, objects))
        level = below
    return found


def _objects(values: list[Any]) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the objects that values are, or are lists of."""
    if all(isinstance(one, dict) for one in values):
        return values, False
    if all(isinstance(one, list) and all(isinstance(part, dict) for part in one) for one in values):
        return [part for one in values for part in one], True
    return [], False


def _kind(values: list[Any]) -> str:
    if all(isinstance(one, bool | int | float) for one in values):
        return "number"
    if all(isinstance(one, str) for one in values):
        return "text"
    if all(isinstance(one, list) for one in values):
        if any(values) and all(message(part) for one in values for part in one):
            return "messages"
        parts = [part for one in values for part in one if part is not None]
        while parts and all(isinstance(part, list) for part in parts):
            parts = [one for part in parts for one in part if one is not None]
        if parts and all(isinstance(part, bool | int | float) for part in parts):
            return "list"
        if parts and all(isinstance(part, str) for part in parts):
            return "texts"
    return "other"


def parts_of(path: str, known: Mapping[str, Any]) -> list[str]:
    """Return the parts of a path; a dot within the name of a column at the top parts nothing."""
    head = next((key for key in sorted(known, key=len, reverse=True) if path == key or path.startswith(f"{key}.")), None)
    if head is None:
        return path.split(".")
    return [head, *(path[len(head) + 1 :].split(".") if len(path) > len(head) else [])]


def value_at(value: Any, parts: Sequence[str]) -> Any:
    """Return what a path leads to; a list of objects on the way gives a list of what is in each."""
    for place, part in enumerate(parts):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            rest = parts[place:]
            if len(rest) > 1 and _takes(rest[-1]) and not _takes(part):
                return _taken([value_at(one, rest[:-1]) for one in value], rest[-1])
            if not _takes(part):
                return [value_at(one, rest) for one in value]
            value = _taken(value, part)
        else:
            return None
    return value


def _takes(part: str) -> bool:
    """Return whether a part of a path takes something of a list."""
    return part == BUT_LAST or part in SUMMARIES or part.lstrip("-").isdigit()


def _taken(value: list[Any], part: str) -> Any:
    """Return what a part of a path takes of a list; a summary, of the innermost lists."""
    if part == BUT_LAST:
        return value[:-1]
    if part in SUMMARIES:
        if value and all(isinstance(one, list) for one in value):
            return [_taken(one, part) for one in value]
        numbers = [one for one in value if isinstance(one, bool | int | float)]
        return SUMMARIES[part](numbers) if numbers else None
    index = int(part)
    return value[index] if -len(value) <= index < len(value) else None


def message(value: Any) -> bool:
    """Return whether a value is a message of a conversation."""
    return isinstance(value, dict) and "role" in value and "content" in value


def decoded(value: Any) -> list[Any] | dict[str, Any] | None:
    """Return the list or object that a text is, in JSON or as Python writes it; None if it is none."""
    if not isinstance(value, str) or value[:1] not in ("[", "{") or value[-1:] not in ("]", "}"):
        return None
    try:
        found = json.loads(value)
    except ValueError:
        try:
            found = literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return found if isinstance(found, list | dict) else None
