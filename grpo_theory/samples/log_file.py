"""Files of rollouts, read batch by batch: CSV, JSON lines and Parquet, as plain columns of numbers and ids."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from grpo_theory.samples.column_values import kind_of

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz", ".parquet")
PEEK = 200
"""So many lines of JSON are looked at to see which columns there are."""
BYTES_A_ROW = 500
"""About what a row takes: a batch of rows of text is read in blocks of so many bytes a row."""


def ending(path: Path) -> str | None:
    """Return what a file's name ends in, if it is a kind that can be read."""
    name = path.name.lower()
    return max((one for one in ENDINGS if name.endswith(one)), key=len, default=None)


def files_of(path: Path) -> list[Path]:
    """Return a file, or a folder's files, those in folders under it included, in the order of the numbers in their names."""
    if path.is_file():
        if ending(path) is None:
            raise ValueError(f"path must end in {', '.join(ENDINGS)}, got {str(path)!r}")
        return [path]
    if not path.is_dir():
        raise ValueError(f"path must be a file or a folder of files, and {str(path)!r} does not exist")
    found = [one for one in path.rglob("*") if one.is_file() and ending(one)]
    if not found:
        raise ValueError(f"path must be a file or a folder of files that end in {', '.join(ENDINGS)}; {str(path)!r} has none")
    return sorted(found, key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(one))])


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
        self._ending = str(ending(path)).removesuffix(".gz")
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty")
        try:
            self.kinds = {field.name: kind_of(field.type) for field in self._schema()}
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            self._refuse(error)
        if self._ending == ".csv":
            self.kinds = dict.fromkeys(self.kinds, "number")

    def _refuse(self, error: Exception) -> NoReturn:
        wanted = {".csv": "CSV table", ".parquet": "Parquet file"}.get(self._ending, "file of JSON lines")
        why = self._bad_rows[0] if self._bad_rows else str(error).strip()
        raise ValueError(f"{self.path} is no whole {wanted}: {why}") from None

    def _schema(self) -> pa.Schema:
        if self._ending == ".parquet":
            return pq.read_schema(self.path)
        if self._ending == ".csv":
            options = pyarrow.csv.ReadOptions(use_threads=False)  # with threads the numbers of lines are not known
            return pyarrow.csv.open_csv(self.path, options, _csv_options(self._bad_rows)).schema
        with self._opened() as lines:
            first = [line for line, _ in zip(lines, range(PEEK), strict=False)]
        return _table_of_lines(first, None, self.path, 0).schema

    def _opened(self) -> Any:
        return gzip.open(self.path, "rb") if self.path.suffix == ".gz" else self.path.open("rb")

    def batches(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield tables of about so many rows with the columns named, at least one row each."""
        missing = [name for name in names if name not in self.kinds]
        if missing:
            raise ValueError(
                f"{self.path} has no column {', '.join(missing)}, as the files before it do; found {', '.join(self.kinds)}"
            )
        read = {".parquet": self._parquet, ".csv": self._csv}.get(self._ending, self._json)
        try:
            yield from (table for table in read(names, rows) if table.num_rows)
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            self._refuse(error)

    def _parquet(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(rows, columns=names):
                yield pa.Table.from_batches([batch])

    def _csv(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        reader = pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=rows * BYTES_A_ROW),
            parse_options=_csv_options(self._bad_rows),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def _json(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        schema: pa.Schema | None = None
        done, rest = 0, b""
        with self._opened() as file:
            while block := file.read(rows * BYTES_A_ROW):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    table = _table_of_block(whole, names, schema, self.path, done)
                    schema, done = table.schema, done + whole.count(b"\n") + 1
                    yield table
        if rest.strip():
            yield _table_of_block(rest, names, schema, self.path, done)


def _csv_options(bad: list[str]) -> pyarrow.csv.ParseOptions:
    """Return options that allow new lines within quotes, and note a row with too few or too many columns."""

    def note(row: Any) -> str:
        number = "a row" if row.number is None else f"line {row.number}"
        bad.append(f"{number} has {row.actual_columns} columns and not {row.expected_columns}: {row.text[:100]!r}")
        return "error"

    return pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note)


def _table_of_block(block: bytes, names: list[str], schema: pa.Schema | None, path: Path, done: int) -> pa.Table:
    """Return the columns named of lines of JSON, of types as before if they can be had; a broken line is named."""
    if schema is not None:
        options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            return pyarrow.json.read_json(
                pa.BufferReader(block), pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1), options
            )
        except pa.ArrowInvalid:
            pass  # a line that is broken, or of other types: seen one by one
    return _table_of_lines(block.split(b"\n"), names, path, done)


def _table_of_lines(lines: list[bytes], names: list[str] | None, path: Path, done: int) -> pa.Table:
    """As `_table_of_block`, line by line; all columns if None are named."""
    found = []
    for place, line in enumerate(lines):
        if line.strip():
            where = f"line {done + place + 1}"
            try:
                row = json.loads(line)
            except ValueError as error:
                opened = place == 0 and done == 0 and line.lstrip().startswith(b"[")
                hint = " (a list of objects is not read: write one object a line)" if opened else ""
                raise pa.ArrowInvalid(f"{where} is broken, {error}{hint}") from None
            if not isinstance(row, dict):
                raise pa.ArrowInvalid(f"{where} is not an object, {{...}}: write one object a line, and no list around them")
            found.append(row)
    keys = list(dict.fromkeys(key for row in found for key in row)) if names is None else names
    return pa.table({key: _column([row.get(key) for row in found]) for key in keys})


def _column(values: list[Any]) -> pa.Array:
    """Return values as a column; of mixed types as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([one if one is None or isinstance(one, str) else json.dumps(one) for one in values])
