"""Files of rollouts, read batch by batch: CSV, JSON lines and Parquet, as plain columns of numbers and ids."""

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from grpo_theory.logs.column_values import kind_of
from grpo_theory.logs.log_folder import ENDINGS, ending
from grpo_theory.logs.nested_rows import (
    Field,
    NestedRow,
    check_depth,
    column_of,
    decoded,
    document_of,
    fields_of,
    is_row,
    may_be_document,
    rows_of_lines,
    table_of_block,
    table_of_lines,
)
from grpo_theory.user_text import listed, printable

SAMPLE = 200
"""The number of rows that are looked at to see what is in their objects and lists, and that are taken apart at a time."""
PEEK_BYTES = 2**16
"""The number of bytes that are looked at in the middle and at the end."""
PEEK = 200
"""The number of lines of JSON that are looked at to see which columns there are."""
BLOCK = 2**23
"""The number of bytes of text that are read at a time; a row of a CSV table that is longer is refused."""
PACKED = {".gz": "gzip", ".zst": "zstd"}
MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""How compressed files begin."""
PARQUET, ARROW = b"PAR1", b"ARROW1\x00\x00"
BINARY = (".parquet", ".arrow", ".feather")
OTHER_KINDS = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh91AY&SY": "a file compressed by bzip2",
    b"\xfd7zXZ\x00": "a file compressed by xz",
    ARROW: "an Arrow file",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
"""What is not read, by how it begins."""
BROKEN = (pa.ArrowException, OSError, EOFError, UnicodeError)
"""What readers raise on a file that is not what its name says."""


class LogFile:
    """A file of rollouts.

    Attributes
    ----------
    path : Path
    constants : dict of str to str
        Columns that the file's path gives, the same in all rows.
    kinds : dict of str to str
        Its columns, and what they hold: "number", "text", "list" or "other".  Text in CSV files may be numbers.
    """

    def __init__(self, path: Path, constants: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.constants = dict(constants or {})
        self._bad_rows: list[str] = []
        self._packed = PACKED.get(path.suffix.lower())
        self._ending = str(ending(path)).removesuffix(".gz").removesuffix(".zst")
        self._document: list[NestedRow] | None = None
        if path.stat().st_size == 0:
            raise ValueError(f"{printable(path)} is empty")
        self._check_kind()
        try:
            self._first = self._schema()
            self.kinds = {field.name: kind_of(field.type) for field in self._first}
        except BROKEN as error:
            self.refuse(error)
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
        text = self._ending not in BINARY
        for kind, magic in MAGIC.items() if text else ():
            if (self._packed == kind) != first.startswith(magic):
                held = f"is not compressed by {kind}" if self._packed == kind else f"is compressed by {kind}"
                suffix = "" if self._packed == kind else next(one for one, name in PACKED.items() if name == kind)
                raise ValueError(f"{named} and {held}: name it {self._ending}{suffix}")
        if self._packed and not pa.Codec.is_available(self._packed):
            raise ValueError(f"{named}, and no reader of {self._packed} is installed here: decompress it first")
        if text and not self._packed:
            if first.startswith(PARQUET) and last == PARQUET:
                raise ValueError(f"{named} and is a Parquet file: name it .parquet")
            other = next((kind for magic, kind in OTHER_KINDS.items() if first.startswith(magic)), None)
            if other:
                raise ValueError(f"{named} and is {other}, which is not read: write it as {', '.join(ENDINGS)}, text in UTF-8")

    def refuse(self, error: Exception) -> NoReturn:
        """Raise ValueError for a file that a reader failed on, in words that speak of rows."""
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
        if self._ending in BINARY:
            with self._arrow() as reader:
                return reader.schema
        if self._ending == ".csv":
            options = pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK)  # with threads lines have no numbers
            with self._stream() as stream, pyarrow.csv.open_csv(stream, options, _csv_options(self._bad_rows)) as reader:
                return reader.schema
        with self._opened() as lines:
            first = list(islice(lines, PEEK))
        self._document = self._whole_document(first)
        if self._document is not None:
            self._sample = [row for _, row in self._document[:PEEK]]
            return pa.schema([(name, column_of([row.get(name) for row in self._sample]).type) for name in _keys(self._document)])
        check_depth(first, 0)
        found = list(rows_of_lines(first, 0))
        self._lists = len({number for number, _ in found}) < len(found)
        late = self._late_lines(sum(map(len, first)))
        self._sample = [row for _, row in found] + [row for _, row in rows_of_lines(late, 0)]
        return table_of_lines([*first, *late], None, 0).schema

    def _late_lines(self, seen: int) -> list[bytes]:
        """Return some lines of the middle and of the end, so that columns that begin late are seen; those that are rows."""
        size, late = self.path.stat().st_size, list[bytes]()
        if self._packed or size <= seen:
            return late
        with self.path.open("rb") as file:
            for start in (size // 2, size - PEEK_BYTES):
                file.seek(max(start, seen - 1))
                late += file.read(PEEK_BYTES).split(b"\n")[1:-1]
        return [line for line in late if is_row(line)]  # of one that is none, a number can be told only when all are read

    def _whole_document(self, first: Sequence[bytes]) -> list[NestedRow] | None:
        """Return the rows of a file that is one JSON document and not an object a line."""
        if not may_be_document(first, keyed=self._ending == ".json"):
            return None
        with self._opened() as file:
            return document_of(file.read())

    def _opened(self) -> Any:
        if self._packed:
            return io.BufferedReader(pa.input_stream(str(self.path), compression=self._packed))
        return self.path.open("rb")

    def _stream(self) -> pa.NativeFile:
        return pa.input_stream(str(self.path), compression=self._packed)

    def _arrow(self) -> Any:
        with self.path.open("rb") as file:
            whole = file.read(len(ARROW)) == ARROW
        source = pa.memory_map(str(self.path))
        return pa.ipc.open_file(source) if whole else pa.ipc.open_stream(source)

    @cached_property
    def sample(self) -> list[dict[str, Any]]:
        """Some rows, of Parquet and Arrow files without long columns of numbers."""
        if self._ending not in (".csv", *BINARY):
            return self._sample
        try:
            tables = self._csv(list(self.kinds), SAMPLE) if self._ending == ".csv" else self._tables(list(self.kinds), SAMPLE)
            table = next(tables, None)
        except BROKEN as error:
            self.refuse(error)
        rows = [] if table is None else table.slice(0, SAMPLE).to_pylist()
        self._encoded = {name for name in self.kinds if rows and all(decoded(row[name]) is not None for row in rows)}
        return [self._plain(row) for row in rows]

    def _plain(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row whose columns of lists written as text are lists."""
        return {name: decoded(value) if name in self._encoded else value for name, value in row.items()}

    @property
    def fields(self) -> dict[str, Field]:
        """All that a name can be of: what the rows have, and what the file's path says."""
        return self.row_fields | {name: Field("number") for name in self.constants if name not in self.row_fields}

    @cached_property
    def row_fields(self) -> dict[str, Field]:
        """Columns, and what lies in objects and lists within them, by their paths."""
        found = {name: Field(kind) for name, kind in self.kinds.items()}
        if self._ending == ".csv":
            found = {field.name: Field("text" if kind_of(field.type) == "text" else "number") for field in self._first}
        if self._ending == ".csv" or any(kind in ("other", "list") for kind in self.kinds.values()) or self.document:
            inside = fields_of(self.sample)
            found |= {path: one for path, one in inside.items() if path not in found or one.kind in ("list", "texts", "messages")}
        return found

    @property
    def document(self) -> bool:
        """Whether the rows are a document's, or lists of objects in lines: read row by row."""
        return self._document is not None or getattr(self, "_lists", False)

    def rows(self, tops: list[str]) -> Iterator[NestedRow]:
        """Yield all rows as objects, with their numbers."""
        if self._document is not None:
            yield from self._document
        elif self._ending in (".csv", *BINARY):
            _ = self.sample
            done = 0
            for table in self._csv(tops, SAMPLE) if self._ending == ".csv" else self._tables(tops, SAMPLE):
                for row in table.to_pylist():
                    done += 1
                    yield done, self._plain(row)
        else:
            done = 0
            with self._opened() as lines:
                while block := list(islice(lines, SAMPLE)):
                    check_depth(block, done)
                    yield from rows_of_lines(block, done)
                    done += len(block)

    def _tables(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield the columns of a Parquet or Arrow file."""
        return self._parquet(names, rows) if self._ending == ".parquet" else self._ipc(names, rows)

    def batches(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield tables of so many rows or fewer with the columns named, at least one row each."""
        twice = [name for name in names if self._first.names.count(name) > 1]
        if twice:
            raise ValueError(f"{printable(self.path)} has more than one column {listed(twice)}: rename all but one")
        read = {".csv": self._csv, **dict.fromkeys(BINARY, self._tables)}.get(self._ending, self._json)
        try:
            for table in read([name for name in names if name in self.kinds], rows):
                whole = self._with_constants(table, names)
                yield from (whole.slice(start, rows) for start in range(0, whole.num_rows, rows))
        except BROKEN as error:
            self.refuse(error)

    def _with_constants(self, table: pa.Table, names: list[str]) -> pa.Table:
        """Return a table with the columns that the path gives."""
        for name in names:
            if name not in self.kinds:
                table = table.append_column(name, pa.repeat(pa.scalar(self.constants[name]), table.num_rows))
        return table

    def _ipc(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        with self._arrow() as reader:
            many = range(reader.num_record_batches) if isinstance(reader, pa.RecordBatchFileReader) else None
            for batch in reader if many is None else map(reader.get_batch, many):
                table = pa.Table.from_batches([batch]).select(names)
                yield from (table.slice(start, rows) for start in range(0, table.num_rows, rows))

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
                    table = table_of_block(whole, schema, done)
                    schema, done = table.schema, done + whole.count(b"\n") + 1
                    yield table
        if rest.strip():
            yield table_of_block(rest, schema, done)


def _csv_options(bad: list[str]) -> pyarrow.csv.ParseOptions:
    """Return options that allow new lines within quotes, and note a row with too few or too many columns."""

    def note(row: Any) -> str:
        number = "a row" if row.number is None else f"line {row.number}"
        bad.append(f"{number} has {row.actual_columns} columns and not {row.expected_columns}: {row.text[:100]!r}")
        return "error"

    return pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note)


def _keys(rows: Sequence[NestedRow]) -> list[str]:
    return list(dict.fromkeys(str(key) for _, row in rows for key in row))
