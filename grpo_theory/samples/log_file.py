"""Files of rollouts, read batch by batch: CSV, JSON lines and Parquet, as plain columns of numbers and ids."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from grpo_theory.samples.column_values import kind_of
from grpo_theory.user_text import listed, printable

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz", ".parquet")
PEEK = 200
"""So many lines of JSON are looked at to see which columns there are."""
BLOCK = 2**23
"""So many bytes of text are read at a time; a row of a CSV table that is longer is refused."""
DEEPEST = 200
"""JSON that is nested deeper is refused: readers of it, which call themselves for each level, end with the process."""
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
LEVELS = np.zeros(256, dtype=np.int32)
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1
GZIP, PARQUET = b"\x1f\x8b", b"PAR1"
OTHER_KINDS = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh91AY&SY": "a file compressed by bzip2",
    b"\xfd7zXZ\x00": "a file compressed by xz",
    b"\x28\xb5\x2f\xfd": "a file compressed by zstd",
    b"ARROW1\x00\x00": "an Arrow file",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
"""What is not read, by how it begins."""
BROKEN = (pa.ArrowException, OSError, EOFError, UnicodeError)
"""What readers raise on a file that is not what its name says."""


def ending(path: Path) -> str | None:
    """Return what a file's name ends in, if it is a kind that can be read."""
    name = path.name.lower()
    return max((one for one in ENDINGS if name.endswith(one)), key=len, default=None)


def files_of(path: Path) -> list[Path]:
    """Return a file, or a folder's files, in the order of the numbers in their names.

    Those in folders under it are included, hidden ones are not.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise ValueError(
            f"path must be a file or a folder of files, and '{printable(path)}' is a pipe or device: write it to a file first"
        )
    if path.is_file():
        if ending(path) is None:
            raise ValueError(f"path must end in {', '.join(ENDINGS)}, got '{printable(path)}'")
        return [path]
    if not path.is_dir():
        raise ValueError(f"path must be a file or a folder of files, and '{printable(path)}' does not exist")
    hidden = re.compile(r"(^|/)\.")
    files = [
        one for one in path.rglob("*") if one.is_file() and ending(one) and not hidden.search(one.relative_to(path).as_posix())
    ]
    if not files:
        raise ValueError(
            f"path must be a file or a folder of files that end in {', '.join(ENDINGS)}; '{printable(path)}' has none"
        )
    return sorted(files, key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(one))])


class LogFile:
    """A file of rollouts.

    Attributes
    ----------
    path : Path
    kinds : dict of str to str
        Its columns, and what they hold: "number", "text", "list" or "other".  Text in CSV files may be numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bad_rows: list[str] = []
        self._packed = path.suffix.lower() == ".gz"
        self._ending = str(ending(path)).removesuffix(".gz")
        if path.stat().st_size == 0:
            raise ValueError(f"{printable(path)} is empty")
        self._check_kind()
        try:
            self._first = self._schema()
            self.kinds = {field.name: kind_of(field.type) for field in self._first}
        except BROKEN as error:
            self._refuse(error)
        if not self.kinds:
            raise ValueError(f"{printable(path)} has no columns")
        if self._ending == ".csv":
            self.kinds = dict.fromkeys(self.kinds, "number")

    def _check_kind(self) -> None:
        """Raise ValueError if the file begins as one of another kind than its name says."""
        with self.path.open("rb") as file:
            first = file.read(max(map(len, OTHER_KINDS)))
            file.seek(max(0, self.path.stat().st_size - len(PARQUET)))
            last = file.read()
        named = f"{printable(self.path)} is named {ending(self.path)}"
        if self._packed != first.startswith(GZIP) and self._ending != ".parquet":
            held = "is not compressed by gzip" if self._packed else "is compressed by gzip"
            raise ValueError(f"{named} and {held}: name it {self._ending}{'' if self._packed else '.gz'}")
        if self._ending != ".parquet" and not self._packed:
            if first.startswith(PARQUET) and last == PARQUET:
                raise ValueError(f"{named} and is a Parquet file: name it .parquet")
            other = next((kind for magic, kind in OTHER_KINDS.items() if first.startswith(magic)), None)
            if other:
                raise ValueError(f"{named} and is {other}, which is not read: write it as {', '.join(ENDINGS)}, text in UTF-8")

    def _refuse(self, error: Exception) -> NoReturn:
        wanted = {".csv": "CSV table", ".parquet": "Parquet file"}.get(self._ending, "file of JSON lines")
        why = self._bad_rows[0] if self._bad_rows else str(error).strip()
        # Arrow's messages speak of its blocks, and users know of none.
        if "straddling" in why:
            why = f"a row is longer than {BLOCK} bytes"
        if "Empty CSV file or block" in why:
            why = f"the first {BLOCK} bytes hold no whole row"
        raise ValueError(f"{printable(self.path)} is no whole {wanted}: {printable(why, 400)}") from None

    def _schema(self) -> pa.Schema:
        if self._ending == ".parquet":
            return pq.read_schema(self.path)
        if self._ending == ".csv":
            options = pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK)  # with threads lines have no numbers
            with self._stream() as stream, pyarrow.csv.open_csv(stream, options, _csv_options(self._bad_rows)) as reader:
                return reader.schema
        with self._opened() as lines:
            first = [line for line, _ in zip(lines, range(PEEK), strict=False)]
        return _table_of_lines(first, None, 0).schema

    def _opened(self) -> Any:
        return gzip.open(self.path, "rb") if self._packed else self.path.open("rb")

    def _stream(self) -> pa.NativeFile:
        return pa.input_stream(str(self.path), compression="gzip" if self._packed else None)

    def batches(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield tables of so many rows or fewer with the columns named, at least one row each."""
        missing = [name for name in names if name not in self.kinds]
        if missing:
            raise ValueError(
                f"{printable(self.path)} has no column {listed(missing)}, as the files before it do; "
                f"found {listed(self.kinds, missing)}"
            )
        twice = [name for name in names if self._first.names.count(name) > 1]
        if twice:
            raise ValueError(f"{printable(self.path)} has more than one column {listed(twice)}: rename all but one")
        read = {".parquet": self._parquet, ".csv": self._csv}.get(self._ending, self._json)
        try:
            for table in read(names, rows):
                yield from (table.slice(start, rows) for start in range(0, table.num_rows, rows))
        except BROKEN as error:
            self._refuse(error)

    def _parquet(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(rows, columns=names):
                yield pa.Table.from_batches([batch])

    def _csv(self, names: list[str], _rows: int) -> Iterator[pa.Table]:
        as_text = pyarrow.csv.ConvertOptions(
            include_columns=names, column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        in_blocks = pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK)
        with self._stream() as stream:
            for batch in pyarrow.csv.open_csv(stream, in_blocks, _csv_options(self._bad_rows), as_text):
                yield pa.Table.from_batches([batch])

    def _json(self, names: list[str], _rows: int) -> Iterator[pa.Table]:
        schema, done, rest = pa.schema([self._first.field(name) for name in names]), 0, b""
        with self._opened() as file:
            while block := file.read(BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    table = _table_of_block(whole, schema, done)
                    schema, done = table.schema, done + whole.count(b"\n") + 1
                    yield table
        if rest.strip():
            yield _table_of_block(rest, schema, done)


def _csv_options(bad: list[str]) -> pyarrow.csv.ParseOptions:
    """Return options that allow new lines within quotes, and note a row with too few or too many columns."""

    def note(row: Any) -> str:
        number = "a row" if row.number is None else f"line {row.number}"
        bad.append(f"{number} has {row.actual_columns} columns and not {row.expected_columns}: {row.text[:100]!r}")
        return "error"

    return pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note)


def _table_of_block(block: bytes, schema: pa.Schema, done: int) -> pa.Table:
    """Return the columns of a schema from lines of JSON, of its types if they can be had; a broken line is named."""
    nested = any(pa.types.is_nested(type_) and kind_of(type_) == "other" for type_ in schema.types)  # may have new fields
    lines = block.split(b"\n")
    _check_depth(lines, done)
    options = pyarrow.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if nested else "ignore", newlines_in_values=False
    )
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(block), pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1), options
        ).select(schema.names)
    except pa.ArrowInvalid:  # a line that is broken, or of other types: seen one by one
        return _table_of_lines(lines, schema.names, done)


def _check_depth(lines: list[bytes], done: int) -> None:
    """Raise if a line is nested too deep; brackets within strings do not count."""
    for index, line in enumerate(lines):
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            depth = int(np.cumsum(LEVELS[np.frombuffer(STRINGS.sub(b"", line), dtype=np.uint8)]).max(initial=0))
            if depth > DEEPEST:
                raise pa.ArrowInvalid(f"line {done + index + 1} is nested {depth:,} deep, and {DEEPEST} is the most that is read")


def _table_of_lines(lines: list[bytes], names: list[str] | None, done: int) -> pa.Table:
    """As `_table_of_block`, line by line; all columns if None are named."""
    _check_depth(lines, done)
    rows = []
    for index, line in enumerate(lines):
        if line.strip():
            where = f"line {done + index + 1}"
            try:
                row = json.loads(line)
            except ValueError as error:
                opened = index == 0 and done == 0 and line.lstrip().startswith(b"[")
                hint = " (a list of objects is not read: write one object a line)" if opened else ""
                raise pa.ArrowInvalid(f"{where} is broken, {error}{hint}") from None
            if not isinstance(row, dict):
                raise pa.ArrowInvalid(f"{where} is not an object, {{...}}: write one object a line, and no list around them")
            rows.append(row)
    keys = list(dict.fromkeys(key for row in rows for key in row)) if names is None else names
    return pa.table({key: _column([row.get(key) for row in rows]) for key in keys})


def _column(values: list[Any]) -> pa.Array:
    """Return values as a column; of mixed types as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
        return pa.array([one if one is None or isinstance(one, str) else json.dumps(one, sort_keys=True) for one in whole])
