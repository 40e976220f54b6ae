"""A folder into which a trainer writes a file of rollouts for each step, as it fills."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo_theory.logs import RolloutLog, read_rollouts
from grpo_theory.user_text import printable

LAST = 2**16
"""So many bytes at a file's end are looked at first to find its last line."""


class StepFiles:
    """The files STEP.jsonl of a folder, each given out once, when it is whole.

    A file is whole if its last line is whole, and one of two things holds. It has not grown since the look before, or a later
    step has begun.

    Parameters
    ----------
    folder : Path
        Of files whose names hold the number of their step, as verl's rollout_data_dir has them.

    Raises
    ------
    ValueError
        If the folder does not exist.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            found = "is a file" if folder.exists() else "does not exist"
            raise ValueError(
                f"DIR must be a folder with a file for each step, as verl's rollout_data_dir; '{printable(folder)}' {found}"
            )
        self.folder = folder
        self._read: set[Path] = set()
        self._sizes: dict[Path, int] = {}

    def present(self) -> list[tuple[int, Path]]:
        """Return the steps and files that are there, by step; names that begin with a dot are somebody's unfinished ones."""
        paths = [one for one in self.folder.glob("*.jsonl") if one.is_file() and not one.name.startswith(".")]
        numbered = [(re.findall(r"\d+", one.name), one) for one in paths]
        return sorted((int(numbers[-1]), one) for numbers, one in numbered if numbers)

    def whole(self, *, ended: bool = False) -> list[tuple[int, Path]]:
        """Return the steps and files that were not given out before and are whole.

        Parameters
        ----------
        ended : bool, default False
            Nothing more will be written: it is enough that a file's last line is whole.
        """
        files = self.present()
        ready = []
        for step, path in files:
            if path in self._read:
                continue
            with suppress(FileNotFoundError):  # somebody tidies up
                size, before = path.stat().st_size, self._sizes.get(path)
                self._sizes[path] = size
                settled = ended or size == before or step < files[-1][0]
                if size and settled and ends_whole(path):
                    self._read.add(path)
                    ready.append((step, path))
        return ready

    def waiting(self) -> list[Path]:
        """Return the files that are there and were not given out."""
        return [path for _, path in self.present() if path not in self._read]


def ends_whole(path: Path) -> bool:
    """Return whether the last line of a file of JSON lines is an object: one that is half written has no closing brace."""
    size, length = path.stat().st_size, LAST
    while True:
        with path.open("rb") as file:
            file.seek(max(0, size - length))
            end = file.read(length).rstrip()
        line = end.rpartition(b"\n")[2]
        if b"\n" in end or length >= size:
            break
        length *= 16
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def read_step(path: Path, **reading: Any) -> RolloutLog:
    """Read the rollouts of one step's file; names of columns and choices of rows as in `gt.read_rollouts`."""
    return read_rollouts(path, steps="all", **reading)
