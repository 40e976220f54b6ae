"""Values of a log's columns as arrays: numbers, ids, hashes of texts, scores."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from grpo_theory.logs.log_groups import NO_RESPONSE
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Integers

SHOWN = 5
"""The number of rows that are named in a message."""
OPEN, BETWEEN, CLOSE = "\x02", "\x1f", "\x03"
"""What stands around and between the parts of a conversation where its text is its id."""


def kind_of(type_: pa.DataType) -> str:
    """Return what a column of a type holds: "number", "list" (of numbers), "text" or "other"."""
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return "list" if kind_of(type_.value_type) == "number" else "other"
    return "text" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else "other"


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, decoded if it is a dictionary's."""
    array = column.combine_chunks()
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def numbers(column: pa.ChunkedArray, name: str) -> Array:
    """Return a column of numbers (or true and false) as float64, NaN for what is missing or none."""
    array = whole(column)
    if kind_of(array.type) == "text":
        array = _parsed(array)
    elif pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif pa.types.is_null(array.type):
        array = pa.nulls(len(array), pa.float64())
    if kind_of(array.type) != "number":
        raise ValueError(f"{printable(name)} must be numbers, and the column holds {printable(array.type)}")
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _parsed(texts: pa.Array) -> pa.Array:
    """Return texts as numbers, true and false as 1 and 0; null where a text is none."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        pass

    def number(text: str | None) -> float | None:
        plain = "" if text is None or "_" in text else text.strip().lower()
        try:
            return {"true": 1.0, "false": 0.0}[plain] if plain in ("true", "false") else float(plain)
        except ValueError:
            return None

    return pa.array([number(text) for text in texts.to_pylist()], pa.float64())


def refuse_rows(
    bad: ArrayLike,
    column: pa.ChunkedArray,
    name: str,
    path: Path,
    numbers: Integers,
    wanted: str = "finite numbers",
    hint: str = "",
) -> None:
    """Raise ValueError if rows are bad, naming the first of them and what they hold; `numbers` are those of the rows."""
    rows = np.flatnonzero(bad)
    if rows.size:
        values = [(int(k), column[int(k)].as_py()) for k in rows[:SHOWN]]
        held = ", ".join(f"row {numbers[k]} ({'empty' if value is None else printable(repr(value), 60)})" for k, value in values)
        more = f" and {rows.size - SHOWN} or more" if rows.size > SHOWN else ""
        raise ValueError(f"{printable(name)} must be {wanted}; {printable(path)} has others in {held}{more}{hint}")


def texts(array: pa.Array) -> pa.Array:
    """Return nested values, such as a conversation's messages, as texts that differ where they do; null stays null.

    Fields come in the order of their names, without those that are null: whatever else other rows have, a text stays what it is.
    """
    kind, missing = array.type, pa.scalar(None, pa.string())
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_struct(kind):
        fields = [
            pc.binary_join_element_wise(pa.scalar(name), texts(pc.struct_field(array, [k])), "=")
            for name, k in sorted((kind.field(k).name, k) for k in range(kind.num_fields))
        ]
        start = pc.if_else(array.is_valid(), OPEN, "")
        joined = pc.binary_join_element_wise(start, *fields, BETWEEN, null_handling="skip")
        return pc.if_else(array.is_valid(), pc.binary_join_element_wise(joined, CLOSE, ""), missing)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        items = pc.fill_null(texts(pc.list_flatten(array)), "")
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), items), BETWEEN)
        return pc.if_else(array.is_valid(), pc.binary_join_element_wise(OPEN, joined, CLOSE, ""), missing)
    return array.cast(pa.string())


def ids(column: pa.ChunkedArray, name: str) -> pa.DictionaryArray:
    """Return a column of ids, texts or conversations as codes and what they stand for."""
    array = whole(column)
    if kind_of(array.type) in ("list", "other"):
        try:
            array = texts(array)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise ValueError(
                f"{printable(name)} must be numbers, texts or conversations, and the column holds {printable(array.type)}"
            ) from None
    elif pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
    return array.dictionary_encode()


def hashes(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a number (64 bits) for each value, equal where values are; `NO_RESPONSE` for null and empty ones."""
    import pandas as pd  # slow to import, and not always wanted

    encoded = ids(column, name)
    values = np.array([str(one) for one in encoded.dictionary.to_pylist()] + [""], dtype=object)
    codes = pc.fill_null(encoded.indices, len(values) - 1).to_numpy(zero_copy_only=False)
    return np.where(values == "", np.uint64(NO_RESPONSE), pd.util.hash_array(values, categorize=False))[codes]


def vectors(table: pa.Table, names: tuple[str, ...], path: Path, rows: Integers, width: int | None) -> Array:
    """Return the scores (N, J) of a column of lists, or of J columns of numbers; `width` is the J of the rows before."""
    if len(names) > 1 or kind_of(table[names[0]].type) != "list":
        columns = [numbers(table[name], name) for name in names]
        for name, column in zip(names, columns, strict=True):
            refuse_rows(~np.isfinite(column), table[name], f"scores ({name})", path, rows)
        return np.stack(columns, axis=1)
    array = whole(table[names[0]])
    lengths = pc.fill_null(pc.list_value_length(array), -1).to_numpy(zero_copy_only=False)
    first = int(lengths[0]) if width is None else width
    unequal = np.flatnonzero(lengths != first)
    if unequal.size or first < 1:
        row = int(unequal[0]) if unequal.size else 0
        held = "no list" if lengths[row] < 0 else f"one of {lengths[row]} numbers"
        other = "" if first < 0 else f", and the first has {first}"
        raise ValueError(f"scores must be lists of equal length; row {rows[row]} of {printable(path)} has {held}{other}")
    flat = numbers(pa.chunked_array([pc.list_flatten(array)]), "scores").reshape(len(lengths), first)
    refuse_rows(~np.isfinite(flat).all(axis=1), table[names[0]], "scores", path, rows)
    return flat
