"""What a study is: cells, each split into chunks; a table; claims read off the table."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.inference import Claim

Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One setting of a study.

    Attributes
    ----------
    settings : Mapping
        JSON-able; whatever the chunks' results depend on.
    chunks : int
        The number of chunks into which the cell's work is split.
    code : str
        A checksum of the user's code that the results depend on; it names no seed, so an edited kernel sees the same draws.
    """

    settings: Settings
    chunks: int = 1
    code: str = ""

    @property
    def key(self) -> str:
        """The settings in canonical form."""
        return json.dumps(dict(self.settings), sort_keys=True)


@dataclass(frozen=True)
class Study:
    """A study, as plain functions of data.

    Attributes
    ----------
    name : str
    title : str
        One line on what it decides.
    cells : callable
        ``cells(quick)`` lists the cells.
    compute : callable
        ``compute(settings, seed, chunk)`` is a pure function with a JSON-able result.
    rows : callable
        ``rows(settings, results)`` turns the results of a cell's chunks, in order, into rows of the table.
    claims : callable
        ``claims(table)`` reads the claims off the table.
    """

    name: str
    title: str
    cells: Callable[[bool], Sequence[Cell]]
    compute: Callable[[Settings, np.random.SeedSequence, int], Any]
    rows: Callable[[Settings, list[Any]], Rows]
    claims: Callable[[pd.DataFrame], list[Claim]]


def cell_seed(study: str, cell: Cell, seed: int) -> np.random.SeedSequence:
    """Return the seed of a cell: keyed by the study's name and the cell's settings, not by their places in a list."""
    key = (zlib.crc32(study.encode()), zlib.crc32(cell.key.encode()))
    return np.random.SeedSequence(seed, spawn_key=key)
