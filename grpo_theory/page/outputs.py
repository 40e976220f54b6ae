"""Where the command writes: files, which are whole or not there at all, pipes and devices, and the standard output."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

CAN_BE_WRITTEN = "must be a file in a folder that exists and can be written"
STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
OPEN = ("/dev/", "/proc/")
"""Where devices and what is open already have names: text is added to them, and they are never replaced."""


def targets(outputs: Mapping[str, str | None], table: str, read: Sequence[Path]) -> dict[str, Path]:
    """Return where outputs go, by their kind; raise ValueError if one cannot be written or would change what is read.

    Parameters
    ----------
    outputs : mapping
        What was given for --json and --html.
    table : str
        The file or folder.
    read : sequence of Path
        The files that will be read.
    """
    chosen: dict[str, Path] = {}
    for kind, given in outputs.items():
        if given in STANDARD_OUTPUT and kind != "json":
            raise ValueError(f"--{kind} must be a file, got {given}; only --json can be printed")
        if given is None or given in STANDARD_OUTPUT:
            continue
        try:
            path = Path(given) if given.startswith(OPEN) else Path(given).resolve()
            folder = Path(table).resolve()
            same = [file for file in read if path.exists() and file.exists() and path.samefile(file)]
            if path == folder or same[:1] == [Path(table)]:
                raise ValueError(f"--{kind} must not be the table itself, got {given}")
            if same:
                raise ValueError(f"--{kind} must not be {same[0]}, which is read as part of the table, got {given}")
            if folder.is_dir() and folder in path.parents:
                raise ValueError(f"--{kind} must be outside the table's folder, whose files are the table, got {given}")
            there = path if path.exists() or given.startswith(OPEN) else path.parent
            if path.is_dir() or path.is_block_device() or not path.parent.is_dir() or not os.access(there, os.W_OK):
                raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}")
        except OSError as error:
            raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}: {error.strerror}") from None
        if path in chosen.values():
            raise ValueError(f"--json and --html must be different files, got {given} for both")
        chosen[kind] = path
    with suppress(OSError):  # of a standard output that is closed
        if any(file.exists() and os.path.samestat(os.fstat(1), file.stat()) for file in read):
            raise ValueError("standard output must not be the table itself, got it by > or >>")
    return chosen


def log_files(table: str) -> list[Path]:
    """Return the files that a log may be read from: itself, or all in the folder."""
    path = Path(table)
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file()) if table else []


def write(texts: Mapping[Path, str]) -> None:
    """Write texts: a file under another name first, which gets its own when it is whole; an error names what was asked for."""
    for path, text in texts.items():
        with named(path):
            if str(path).startswith(OPEN) or path.is_fifo() or path.is_char_device():
                opened = int(path.name) if path.parent == Path("/dev/fd") else path  # by its number, others go on after the text
                with open(opened, "a", encoding="utf-8", closefd=opened == path) as stream:
                    stream.write(text)
                continue
            part = path.with_name(f".{uuid4().hex}")
            try:
                part.write_text(text, encoding="utf-8")
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


@contextmanager
def named(what: object) -> Iterator[None]:
    """Name a file in the OSError that an attempt to write it raises; that nobody reads any more is no error of it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(what)) from None
