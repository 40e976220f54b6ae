"""Finished sketches in a folder, so that long work can be interrupted."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from grpo_theory.validation import Array


class Shelf:
    """A folder of arrays by what they are of; those that were made with other settings are not found.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    settings : object
        All that an array depends on besides its key; its `repr` is what counts.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.settings = repr(settings)

    def path(self, key: Any) -> Path:
        """Return where the array of a key is."""
        return self.folder / f"{hashlib.sha256(f'{self.settings} {key!r}'.encode()).hexdigest()[:32]}.npy"

    def take(self, key: Any, width: int) -> Array | None:
        """Return the array (width,) of a key, or None if there is none, or a damaged one."""
        try:
            array = np.load(self.path(key), allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError):
            return None
        return array if array.shape == (width,) and np.isfinite(array).all() else None

    def put(self, key: Any, array: Array) -> None:
        """Keep the array of a key: the file is there whole or not at all."""
        path = self.path(key)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        with draft.open("wb") as file:
            np.save(file, array)
        draft.replace(path)
