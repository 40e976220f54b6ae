"""What a study is: a file, whose head states theorems and whose body computes what decides them.

`grpo_theory.harness.sides` reads a study from the checks in its file.  What is stated is each `Statement` at the top level of the
file, alone, in a tuple or in a dict.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import PARTS, Claim, Statement

Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]

COLUMNS = ("prediction", "estimate", "standard_error", "replications")
"""The columns that every table has, after those that say what a row is of; NaN where there is no prediction."""
EXACT = {"standard_error": 0.0, "replications": 0}
"""The last two of them in a row that is computed and not simulated."""
PART = "of"
"""The setting that says which function of a study computes a cell."""


@dataclass(frozen=True)
class Cell:
    """One setting of a study.

    Attributes
    ----------
    settings : Mapping
        JSON-able; whatever the chunks' results depend on.
    chunks : int
        The number of chunks into which the cell's work is split.
    shared : bool
        Whether all chunks are handed generators that draw the same.  Chunks of replications need this, because they number their
        blocks on from one chunk to the next, and so do arms on the same draws.  Else each chunk has a seed of its own.
    code : str
        A checksum of the user's code that the results depend on; it names no seed, so an edited kernel sees the same draws.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> cell = gt.harness.Cell({"problem": "tabular", "group_size": 8}, chunks=4)
    >>> cell.settings["group_size"], cell.chunks
    (8, 4)
    """

    settings: Settings
    chunks: int = 1
    code: str = ""
    shared: bool = False

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
        The name of its file.
    title : str
        The first line of the file's docstring: what it decides.
    module : str
        The module that it was read from.
    cells : callable
        ``cells(quick)`` lists the cells.
    compute : callable
        ``compute(settings, rng, chunk)`` is a pure function with a JSON-able result. The generator is the chunk's own,
        unless the cell says that its chunks share one seed.
    table : callable
        ``table(results, quick)`` makes all rows of the table, from (settings, results of the chunks in order) of all cells.
    claims : callable
        ``claims(table)`` reads the claims off the table.
    statements : tuple of Statement
        What its file states: those that its claims are about, and the heads of those that are split.
    uninformative : Mapping
        Why the control of a claim is known to survive, by the statement's id and the setting, in which * stands for any text.
    sources : tuple of SourceFile
        Of a user's study the files that travel with its chunks: what it needs, and then its own.
    """

    name: str
    title: str
    module: str
    cells: Callable[[bool], Sequence[Cell]]
    compute: Callable[[Settings, np.random.Generator, int], Any]
    table: Callable[[Iterable[tuple[Settings, list[Any]]], bool], Rows]
    claims: Callable[[pd.DataFrame], list[Claim]]
    statements: tuple[Statement, ...] = ()
    uninformative: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sources: tuple[SourceFile, ...] = ()

    @property
    def decides(self) -> tuple[str, ...]:
        """The ids of the statements that its claims are about."""
        return tuple(one.id for one in self.statements if one.kind != PARTS and one.decided)


def cell_seed(study: str, cell: Cell, seed: int) -> np.random.SeedSequence:
    """Return the seed of a cell: keyed by the study's name and the cell's settings, not by their places in a list."""
    # Without the function that computes them: the same case has the same draws, whatever looks at it.
    case = json.dumps({name: value for name, value in cell.settings.items() if name != PART}, sort_keys=True)
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(study.encode()), zlib.crc32(case.encode())))


def chunk_generator(study: str, cell: Cell, seed: int, chunk: int) -> np.random.Generator:
    """Return the generator that a chunk is handed.

    Its seed is the chunk's own, so that no study can forget to make one.  If the chunk is alone, or the chunks share a seed, it
    is the cell's.
    """
    whole = cell_seed(study, cell, seed)
    return np.random.default_rng(whole if cell.shared or cell.chunks == 1 else whole.spawn(cell.chunks)[chunk])


def table_of(rows: Rows) -> pd.DataFrame:
    """Return the rows as a table whose last columns are `COLUMNS`.

    Raises
    ------
    ValueError
        If a row lacks one of them, or there is no row.
    """
    for row in rows:
        missing = [name for name in COLUMNS if name not in row]
        if missing:
            raise ValueError(f"rows must have the columns {', '.join(COLUMNS)}, and one lacks {missing[0]}: {row}")
    if not rows:
        raise ValueError("a table must have rows, and there is none")
    table = pd.DataFrame(rows)
    return table[[name for name in table if name not in COLUMNS] + list(COLUMNS)]
