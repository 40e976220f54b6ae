"""Results on disk: chunks written atomically and checked when read; tables for pandas."""

import hashlib
import json
import os
import platform
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simulations.harness.fingerprint import module_fingerprint
from simulations.harness.study import Cell, Study


class StoreError(Exception):
    """A results folder or file that cannot be used; the message says which and why."""


@cache
def versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    packages = ("grpo-theory", "numpy", "scipy", "numba", "pandas", "pyarrow", "seaborn", "matplotlib", "statsmodels")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Store:
    """The results of one seed under one folder."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.seed = seed
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root):
                pass
        except OSError as error:
            raise StoreError(f"--results must be a folder that can be written, got {root}: {error.strerror}") from None

    def read_chunk(self, study: Study, cell: Cell, chunk: int) -> dict[str, Any] | None:
        """Return a chunk's record, or None if it is missing, damaged, or made by other code, settings or seed."""
        expected = self._identity(study, cell, chunk)  # first, because Python 3.11 may not parse code while threads do
        try:
            record = json.loads(self._chunk_path(study.name, cell, chunk).read_text())
            body = record["body"]
            intact = record["sha256"] == _checksum(body)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return body if intact and {name: body.get(name) for name in expected} == expected else None

    def write_chunk(self, study: Study, cell: Cell, chunk: int, data: Any, seconds: float) -> None:
        """Write a chunk's result with everything that it depends on."""
        path = self._chunk_path(study.name, cell, chunk)
        body = {**self._identity(study, cell, chunk), "versions": versions(), "seconds": seconds, "data": data}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps({"sha256": _checksum(body), "body": body}).encode())
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; what was finished before is kept") from None

    def write_table(self, study: Study, table: pd.DataFrame, seconds: float) -> None:
        """Write a study's tidy table as Parquet, with seed, versions and run time in its metadata."""
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        facts = {"seed": self.seed, "seconds": seconds, "versions": versions(), "source": module_fingerprint(study.module)}
        metadata = dict(arrow.schema.metadata or {}) | {b"grpo_theory": json.dumps(facts).encode()}
        arrow = arrow.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        pq.write_table(arrow, sink)
        write_atomically(self.root / f"{study.name}.parquet", sink.getvalue().to_pybytes())

    def _chunk_path(self, study: str, cell: Cell, chunk: int) -> Path:
        folder = hashlib.sha256(cell.key.encode()).hexdigest()[:16]
        return self.root / "chunks" / study / folder / f"{chunk:04d}.json"

    def _identity(self, study: Study, cell: Cell, chunk: int) -> dict[str, Any]:
        source = module_fingerprint(study.module) + cell.code
        return {"settings": json.loads(cell.key), "seed": self.seed, "chunk": chunk, "source": source}


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_table(root: Path, study: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a study's table and the facts in its metadata.

    Raises
    ------
    StoreError
        If the table is missing or damaged.
    """
    path = root / f"{study}.parquet"
    try:
        arrow = pq.read_table(path)
        facts = json.loads(arrow.schema.metadata[b"grpo_theory"])
    except FileNotFoundError:
        raise StoreError(f"there is no table {path}: run `python -m simulations run {study} --results {root}`") from None
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"the table {path} is damaged ({type(error).__name__}): run `python -m simulations run {study} --results {root}`,"
            " which rebuilds it from its chunks"
        ) from None
    return arrow.to_pandas(), facts
