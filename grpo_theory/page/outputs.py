"""Where the command writes: files, which are whole or not there at all, and devices and pipes, to which text is added."""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES
from pathlib import Path
from uuid import uuid4

TO_TERMINAL = "-"
CAN_BE_WRITTEN = "must be a file in a folder that exists and can be written"
STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
MOST_LINKS = 40
"""A chain of more links is taken for a circle."""


@dataclass(frozen=True)
class Target:
    """A file by its path; or what is open already, by its number, or a pipe or device by its path, which are streams."""

    path: Path
    number: int | None = None
    stream: bool = False

    def is_file(self, other: Path) -> bool:
        """Whether writing here would change another file."""
        try:
            own = self.path.stat() if self.number is None else os.fstat(self.number)
            return os.path.samestat(own, other.stat())
        except OSError:
            return self.number is None and self.path == other.resolve()


def targets(outputs: Mapping[str, str | None], table: str, read: Sequence[Path]) -> dict[str, Target]:
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
    chosen: dict[str, Target] = {}
    for kind, given in outputs.items():
        if printed(given) and kind != "json":
            raise ValueError(f"--{kind} must be a file, got {given}; only --json can be printed")
        if given is None or printed(given):
            continue
        try:
            target = _target(given)
            _refuse_what_is_read(f"--{kind}", given, target, table, read)
            _try(target)
        except OSError as error:
            why = f": {error.strerror}" if error.strerror else ""
            raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}{why}") from None
        if target in chosen.values():
            raise ValueError(f"--json and --html must be different files, got {given} for both")
        chosen[kind] = target
    _refuse_what_is_read("standard output", "it by > or >>", Target(Path(), number=1), table, read)
    return chosen


def log_files(table: str) -> list[Path]:
    """Return the files of a log that will be read; none where the reader will say what is wrong with it."""
    from grpo_theory.samples.log_folder import files_of  # pyarrow is slow to import

    try:
        return files_of(Path(table)) if table else []
    except (OSError, ValueError):
        return []


def printed(given: str | None) -> bool:
    """Whether an output goes to the standard output, by whatever name."""
    return given is not None and (given == TO_TERMINAL or open_number(Path(given)) == 1)


def _target(given: str) -> Target:
    number = open_number(Path(given))
    if number is not None:
        return Target(Path(given), number, stream=True)
    path = Path(given).resolve()
    mode = path.stat().st_mode if path.exists() else None
    return Target(path, stream=mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)))


def open_number(path: Path) -> int | None:
    """Return the number of the open file that a name stands for, itself or by links, as 1 for /dev/stdout; None if it does not.

    To write to the file that is open there, and not to a new one of its name, keeps what others write to it.
    """
    with suppress(OSError):  # as for a name that is too long, which others will say
        for _ in range(MOST_LINKS):
            name = str(path.parent.resolve() / path.name)
            if name in STANDARD:
                return STANDARD[name]
            if descriptor := re.fullmatch(rf"/(?:dev|proc/{os.getpid()}(?:/task/\d+)?)/fd/(\d+)", name):
                return int(descriptor[1])
            if not path.is_symlink():
                return None
            path = path.parent / path.readlink()
    return None


def _refuse_what_is_read(output: str, given: str, target: Target, table: str, read: Sequence[Path]) -> None:
    """Raise ValueError if an output would change a file that is read, or add one to the folder of them."""
    for file in read:
        if target.is_file(file):
            own = "the table itself" if file == Path(table) else f"{file}, which is read as part of the table"
            raise ValueError(f"{output} must not be {own}, got {given}")
    folder = Path(table).resolve()
    if target.number is None and target.path == folder:
        raise ValueError(f"{output} must not be the table itself, got {given}")
    if target.number is None and folder.is_dir() and folder in target.path.parents:
        raise ValueError(f"{output} must be outside the table's folder, whose files are the table, got {given}")


def _try(target: Target) -> None:
    """Raise OSError if an output cannot be written, after a trial that leaves nothing."""
    path = target.path
    if target.number is not None:
        os.write(target.number, b"")
        return
    if not target.stream and ((path.exists() and not path.is_file()) or not path.parent.is_dir()):
        raise OSError
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES))
    if not target.stream:
        part = _part(path)
        part.touch(exist_ok=False)
        part.unlink()


def _part(path: Path) -> Path:
    """Return the name under which a file is written before it is whole."""
    return path.with_name(f".{uuid4().hex}")


def write(texts: Mapping[Target, str]) -> None:
    """Write texts: files under other names, which get theirs when all is written; an error names what was asked for."""
    parts = {target.path: _part(target.path) for target in texts if not target.stream}
    try:
        for target, text in texts.items():
            if not target.stream:
                with named(target.path):
                    parts[target.path].write_text(text, encoding="utf-8")
        for target, text in texts.items():
            if target.stream:
                with named(target.path):
                    _add(target, text)
        for path, part in parts.items():
            with named(path):
                part.replace(path)
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _add(target: Target, text: str) -> None:
    """Write a text to a stream."""
    opened = os.open(target.path, os.O_WRONLY | os.O_APPEND) if target.number is None else os.dup(target.number)
    with os.fdopen(opened, "w", encoding="utf-8") as stream:
        stream.write(text)


@contextmanager
def named(what: object) -> Iterator[None]:
    """Name a file in the OSError that an attempt to write it raises; that nobody reads any more is no error of it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(what)) from None
