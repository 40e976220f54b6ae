"""A folder into which a trainer writes a file of rollouts for each step, as it fills."""

import json
import re
from contextlib import suppress
from pathlib import Path

from grpo_theory.user_text import printable

KINDS = {".jsonl", ".parquet"}
SETTLED = 3
"""The newest file of JSON lines has not grown for so many looks: a trainer may pause at the end of a line."""
STUCK = 12
"""A file that has not grown for so many looks, and is not whole, is named."""


class StepFiles:
    """The files STEP.jsonl or ..._STEP.parquet of a folder, each given out when it is whole, and again if it grows after that.

    A Parquet file is whole if it has its end mark. The last line of a whole file of JSON lines is an object.
    Such a file has not grown for some looks, or a later step has begun.

    Parameters
    ----------
    folder : Path
        Of files whose names hold the number of their step, as verl's rollout_data_dir or TRL's completions have them.

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
        self._given: dict[Path, int] = {}
        self._looks: dict[Path, tuple[int, int]] = {}

    def present(self) -> list[tuple[int, Path]]:
        """Return the steps and files that are there, by step; names that begin with a dot are somebody's unfinished ones."""
        paths = (one for one in self.folder.iterdir() if one.suffix in KINDS and one.is_file() and not one.name.startswith("."))
        return sorted((int(numbers[-1]), one) for one in paths if (numbers := re.findall(r"\d+", one.stem)))

    def whole(self, *, ended: bool = False) -> list[tuple[int, Path, bool]]:
        """Return the steps and files that are whole and not given out as they are now, and whether each was given out before.

        Parameters
        ----------
        ended : bool, default False
            Nothing more will be written: it is enough that a file's end is whole.
        """
        files = self.present()
        ready = []
        for step, path in files:
            with suppress(FileNotFoundError):  # somebody tidies up
                size, (before, looks) = path.stat().st_size, self._looks.get(path, (-1, 0))
                looks = looks + 1 if size == before else 0
                self._looks[path] = size, looks
                settled = ended or path.suffix == ".parquet" or looks >= SETTLED or step < files[-1][0]
                if settled and size != self._given.get(path) and ends_whole(path):
                    ready.append((step, path, path in self._given))
                    self._given[path] = size
        return ready

    def waiting(self, looks: int | None = None) -> list[Path]:
        """Return the files that were never given out; if a number is given, those seen unchanged for just so many looks."""
        unread = [path for _, path in self.present() if path not in self._given]
        return [path for path in unread if looks is None or self._looks.get(path, (0, 0))[1] == looks]


def ends_whole(path: Path) -> bool:
    """Return whether a file's end is whole: Parquet's mark, or a last line that is an object, which half of one is not."""
    end = path.read_bytes().rstrip()
    with suppress(ValueError, RecursionError):
        return end.endswith(b"PAR1") if path.suffix == ".parquet" else isinstance(json.loads(end.rpartition(b"\n")[2]), dict)
    return False
