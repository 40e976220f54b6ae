"""Results that are kept: the circumstances and every row, as JSON; no date, so that the same results are the same file."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.table import Row, markdown
from grpo_theory.harness.store import write_atomically

PACKAGES = ("grpo-theory", "numpy", "numba", "jax")
FORMAT = 1


class ResultsError(Exception):
    """A file of results that cannot be read; the message is for the user."""


def circumstances() -> dict[str, Any]:
    """Name the machine's processors and the versions that the numbers depend on."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {"processors": os.cpu_count(), "machine": platform.machine(), "versions": versions}


@dataclass(frozen=True)
class Results:
    """What was measured, and where.

    Attributes
    ----------
    circumstances : dict
    rows : list of Row
    """

    circumstances: dict[str, Any]
    rows: list[Row]

    def markdown(self) -> str:
        """Return the circumstances in a line, and the table."""
        where = self.circumstances
        versions = ", ".join(f"{name} {found}" if found else f"no {name}" for name, found in where["versions"].items())
        table = markdown(("name", "value", "target", "met"), [row.cells for row in self.rows])
        return f"{where['processors']} processors ({where['machine']}), {versions}\n\n{table}\n"

    def write(self, path: Path) -> None:
        """Write the table to a Markdown file, and everything to a JSON file beside it; each is there whole or not at all."""
        rows = [asdict(row) | {"met": row.met} for row in self.rows]
        body = json.dumps({"format": FORMAT, "circumstances": self.circumstances, "rows": rows}, indent=1)
        write_atomically(path, self.markdown().encode())
        write_atomically(path.with_suffix(".json"), f"{body}\n".encode())

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Read a JSON file.

        Raises
        ------
        ResultsError
            If it is missing or damaged.
        """
        with reading(path, "results"):
            found = json.loads(path.read_bytes())
            if found["format"] != FORMAT:
                raise ResultsError(f"{path} has format {found['format']!r}, and this version reads {FORMAT}")
            where = found["circumstances"]
            {"processors": where["processors"], "machine": where["machine"], **where["versions"]}
            return cls(where, [_row(row) for row in found["rows"]])


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what goes wrong while a file of this program is read into a `ResultsError`."""
    try:
        yield
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path} is damaged: it is not a file of {kind} that this program wrote") from error


def _row(found: dict[str, Any]) -> Row:
    row = Row(**{name: value for name, value in found.items() if name != "met"})
    for name, kinds in (("name", str), ("detail", str), ("number", int | float | None), ("target", int | float | None)):
        if not isinstance(getattr(row, name), kinds):
            raise TypeError(f"{name} is {getattr(row, name)!r}")
    if row.better not in ("higher", "lower", ""):
        raise ValueError(f"better is {row.better!r}")
    return row
