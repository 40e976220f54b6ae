"""Rows of files as one frame: JSON lines, JSON, CSV, Parquet and Arrow, packed or not; only the columns that are wanted."""

import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet

from grpo_theory.user_text import printable

KINDS = (".jsonl", ".json", ".ndjson", ".csv", ".parquet", ".arrow")
PACKED = (".gz", ".zst")
HEAD = 1 << 20
"""Bytes that show which columns a file has."""
BROKEN = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)
BLANK = 4096
"""Bytes from which on a file holds something."""
FIRST = 64
"""Rows that show what the columns hold."""
CSV = {
    "parse_options": pa.csv.ParseOptions(newlines_in_values=True),
    "convert_options": pa.csv.ConvertOptions(null_values=["", "null", "None"]),
}
AS_ARROW: Any = {"types_mapper": pd.ArrowDtype}
DEEP = b"[" * 1000
"""The parser of Arrow ends the process at some depth; what is this deep is left to that of Python, which refuses it."""
QUOTED = re.compile(rb'(?:\A(?:\xef\xbb\xbf)?|[,\r\n])"[^"]*(?:""[^"]*)*("(?=[,\r\n]|\Z))?')
"""A quoted cell of a CSV and its end. A stray quote makes one cell of all rows up to the next one, in silence."""


def files_of(path: Path, pattern: str | None = None) -> list[Path]:
    """Return the files of a log in the order of the numbers in their names; those of a folder that fit a pattern.

    Raises
    ------
    ValueError
        If there is none, or the path is no file or folder.
    """
    if not path.exists():
        raise ValueError(f"path must be a file or a folder of files, and {str(path)!r} does not exist")
    if path.is_dir():
        inside = [one for one in path.rglob("*") if kind(one) in KINDS and one.is_file()]
        if not (found := [one for one in inside if not any(part[0] == "." for part in one.relative_to(path).parts)]):
            raise ValueError(f"path must be a file or a folder of files that end in {', '.join(KINDS)}; {str(path)!r} has none")
        if not (found := [one for one in found if pattern is None or fnmatchcase(place(one, path), pattern)]):
            raise ValueError(f"--files '{printable(pattern)}' fits none of the files of {str(path)!r}")
        return sorted(found, key=lambda one: [(not part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", str(one))])
    if not path.is_file():
        raise ValueError(f"path must be a file, and {str(path)!r} is a pipe or device: write it to a file first")
    if kind(path) not in KINDS:
        raise ValueError(f"path must end in {', '.join(KINDS)} (.gz or .zst where it is packed), got {str(path)!r}")
    return [path]


def utf8(text: str | Path) -> str:
    """Return a text in which the locale's letters are those of UTF-8, as Arrow and the log have them, even in the locale C."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def place(file: Path, source: Path) -> str:
    """Return where a file is inside the log, from which on its path may say its step or that it is of evaluation."""
    inside = utf8(file.relative_to(source).as_posix() if file != source else file.name)
    return inside.removesuffix(file.suffix) if file.suffix.lower() in PACKED else inside


def shape(path: Path) -> str:
    """Return a path without its numbers: files of one shape have the same columns."""
    return re.sub(r"\d+", "#", str(path))


def kind(path: Path) -> str:
    """Return what a file's name ends in, packed or not."""
    return Path(path.stem if path.suffix.lower() in PACKED else path.name).suffix.lower()


def head(path: Path) -> pd.DataFrame:
    """Return a file's first rows, with all columns."""
    formats = {".csv": pa.dataset.CsvFileFormat(**CSV), ".parquet": "parquet", ".arrow": "feather"}
    if kind(path) in formats or (kind(path) != ".json" and path.stat().st_size > HEAD):
        try:
            return pa.dataset.dataset(utf8(path), format=formats.get(kind(path), "json")).head(FIRST).to_pandas(**AS_ARROW)
        except (*BROKEN, ValueError):
            pass  # said of the whole file
    return rows([path]).drop(columns=["file", "row"]).head(FIRST).copy()  # a view would hold the whole file


def rows(paths: Sequence[Path], wanted: Iterable[str] | None = None, like: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the rows of files in one frame, each with its `file` and its number among all, from 0.

    Parameters
    ----------
    paths : sequence of Path
    wanted : iterable of str, optional
        The columns to be read; None for all.
    like : DataFrame, optional
        First rows, whose types the wanted columns have if all goes well.
    """
    read = [_content(path, wanted, like) for path in paths]
    together: pd.DataFrame
    try:
        if not all(isinstance(one, pa.Table) for one in read):
            raise pa.ArrowInvalid
        whole: Any = pa.concat_tables(read, promote_options="permissive") if len(read) > 1 else read[0]
        together = whole.to_pandas(**AS_ARROW)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        every = [row for one in read for row in (one.to_pylist() if isinstance(one, pa.Table) else one)]
        names = dict.fromkeys(name for row in every for name in row)
        together = pd.DataFrame({name: _column([row.get(name) for row in every]) for name in names})
    codes = np.repeat(np.arange(len(read)), [len(one) for one in read])
    return together.assign(file=pd.Categorical.from_codes(codes, [*map(utf8, paths)]), row=np.arange(codes.size))


def _column(values: list) -> pd.Series:
    """Return a column in a type of Arrow where all its values fit one."""
    try:
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values)))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return pd.Series(values, dtype=object)


def _bytes(path: Path) -> bytes:
    """Return the bytes of a file, which Arrow's readers are not given: they read the file themselves.

    A thread of theirs may be the last to let go of bytes of Python's.  If the interpreter ends just then, the process aborts, as
    apache/arrow#34314 says.
    """
    with pa.input_stream(utf8(path), compression="detect") as stream:
        return bytes(stream.read())


def _content(path: Path, wanted: Iterable[str] | None, like: pd.DataFrame | None) -> pa.Table | list[dict]:
    """Return the rows of a file; ValueError names the file, and the line if one is broken."""
    try:
        match kind(path):
            case ".parquet":
                file = pa.parquet.ParquetFile(utf8(path))
                return file.read(columns=wanted and [one for one in wanted if one in file.schema_arrow.names])
            case ".arrow":
                try:
                    return pa.ipc.open_stream(utf8(path)).read_all()
                except pa.ArrowInvalid:
                    return pa.ipc.open_file(utf8(path)).read_all()
            case ".csv":
                text = _bytes(path)
                if stray := next((one for one in QUOTED.finditer(text) if one[1] is None), None):
                    line = text.count(b"\n", 0, stray.start() + 1) + 1
                    raise ValueError(f"{path.name}, line {line}: a quote is stray, or one is missing")
                table = pa.csv.read_csv(utf8(path), pa.csv.ReadOptions(block_size=16 * HEAD), **CSV)  # not of text: see _bytes
                if again := {name for name in table.column_names if table.column_names.count(name) > 1}:
                    raise ValueError(f"{path.name} has more than one column {printable(min(again))}: rename all but one")
                return table
            case ".json":
                text = _bytes(path)  # a list of objects, a table of W&B, or one object; else what its lines hold
                try:
                    one: Any = json.loads(text)
                except (ValueError, RecursionError):
                    return _listed(text.splitlines(), path, wanted)
                if isinstance(one, dict) and {"columns", "data"} <= one.keys():
                    return [dict(zip(one["columns"], row, strict=False)) for row in one["data"]]
                one = [one] if isinstance(one, dict) else one
                if not isinstance(one, list) or not one or not all(isinstance(row, dict) for row in one):
                    raise ValueError(f"{path.name} holds no rows: a list of objects, or an object a line, is wanted")
                return one
        return _json_lines(path, wanted, like)
    except BROKEN as error:
        raise ValueError(f"{path.name} is broken or cut off: {printable(error)}") from None


def _json_lines(path: Path, wanted: Iterable[str] | None, like: pd.DataFrame | None) -> pa.Table | list[dict]:
    parsing = pa.json.ParseOptions()
    if like is not None and wanted is not None:
        types = {one: getattr(like[one].dtype, "pyarrow_dtype", pa.null()) for one in wanted if one in like}
        if not any(pa.types.is_nested(one) or pa.types.is_null(one) for one in types.values()):
            # A fifth of the time and memory; objects are read whole, since a later row's may have more fields.
            parsing = pa.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
    if DEEP not in _bytes(path):
        try:
            return pa.json.read_json(utf8(path), pa.json.ReadOptions(block_size=16 * HEAD), parsing)
        except pa.ArrowInvalid:
            pass
    return _listed(_bytes(path).splitlines(), path, wanted)


def _listed(lines: list[bytes], path: Path, wanted: Iterable[str] | None) -> list[dict]:
    """Return rows that have no common type, line by line; a line may hold a list of them, and a broken one is named."""
    found: list[dict] = []
    names = None if wanted is None else {*wanted}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                one = json.loads(line)
                held = one if isinstance(one, list) else [one]
                found += [{name: of for name, of in row.items() if names is None or name in names} for row in held]
            except (ValueError, RecursionError, AttributeError) as error:
                faults = {RecursionError: "nested too deep", AttributeError: "it must hold an object, or a list of objects"}
                raise ValueError(f"{path.name}, line {number}: {faults.get(type(error), printable(error))}") from None
    if not found:
        raise ValueError(f"{path.name} has no rows")
    return found
