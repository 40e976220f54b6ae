"""The rows of a trainer's log that were read as responses: its further columns, one after another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grpo_theory.logs import Findings
from grpo_theory.logs.column_values import kind_of, numbers, whole
from grpo_theory.logs.log_source import Source
from grpo_theory.logs.row_responses import response_tables, summed_rewards
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Flags, Integers

BATCH_ROWS = 2**16
"""The most rows that are read at once."""


@dataclass(frozen=True, eq=False)
class TokenLogs:
    """Log-probabilities of all responses in a row, and how many there are of each response.

    Attributes
    ----------
    values : ndarray, shape (T,)
        Natural logarithms.
    counts : ndarray of int64, shape (N,)
        1 for each response if `by_token` is False: then the value is the sum over its tokens.
    by_token : bool
    """

    values: Array
    counts: Integers
    by_token: bool


class KeptRows:
    """The rows that `read_rollouts` kept, one per response, column by column."""

    def __init__(self, source: Source, chosen: Mapping[str, str], findings: Findings) -> None:
        self.source, self.chosen, self.findings = source, chosen, findings

    def is_list(self, role: str) -> bool:
        """Return whether a response has several numbers of a column."""
        column, _ = next(self.arrays(role))
        return kind_of(column.type) == "list"

    def arrays(self, role: str) -> Iterator[tuple[pa.ChunkedArray, Flags]]:
        """Yield the column in pieces, and which of its rows are kept."""
        name, step = self.chosen[role], self.findings.columns.get("step")
        needed = list(dict.fromkeys([name, *([step] if step else [])]))
        lead, split = self.source.lead, self.source.reading.split
        weighed = self.source.columns.reward if self.source.options.unscored == "leave" else {}
        reward = [*weighed, *(one for one in weighed.values() if isinstance(one, str))]
        where = [one for one in self.source.options.where if one != "path"]
        read = list(dict.fromkeys([*needed, lead, *([split] if split else []), *reward, *where]))
        for file in self.source.files:
            for held in response_tables(file, read, lead, BATCH_ROWS):
                table, _ = self.source.used(held, np.arange(held.num_rows))
                kept = self._scored(table)
                if step and self.findings.repeated_steps:
                    kept &= ~np.isin(numbers(table[step], "step"), self.findings.repeated_steps)
                yield table[name], kept

    def _scored(self, table: pa.Table) -> Flags:
        """Return which rows are not left out for want of a reward."""
        if self.source.options.unscored != "leave" or self.source.columns.counted is not None:
            return np.ones(table.num_rows, dtype=np.bool_)
        return ~summed_rewards(table, self.source.columns)[1]

    def lists(self, role: str) -> tuple[Array, Integers]:
        """Return the numbers of a column of lists in a row, and how many each row has."""
        values, counts = [], []
        for column, kept in self.arrays(role):
            array = whole(column).filter(pa.array(kept))
            flat = pc.list_flatten(array).cast(pa.float64(), safe=False)
            values.append(np.asarray(flat.to_numpy(zero_copy_only=False), dtype=np.float64))
            counts.append(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64))
        return self._checked(role, np.concatenate(values), np.concatenate(counts))

    def scalars(self, role: str) -> Array:
        """Return a column of numbers (N,)."""
        parts = [numbers(column, f"{role} ({self.chosen[role]})")[kept] for column, kept in self.arrays(role)]
        values = np.concatenate(parts)
        return self._checked(role, values, np.ones(values.size, dtype=np.int64))[0]

    def tokens(self, role: str, mask: tuple[Array, Integers] | None) -> TokenLogs:
        """Return the log-probabilities of a policy, without the tokens that a mask leaves out."""
        by_token = self.is_list(role)
        values, counts = (
            self._masked(role, mask) if by_token else (found := self.scalars(role), np.ones(found.size, dtype=np.int64))
        )
        return TokenLogs(values, counts, by_token)

    def one_a_response(self, role: str, mask: tuple[Array, Integers] | None) -> Array:
        """Return the advantage of each response (N,): of a list, the one that all its tokens have."""
        if not self.is_list(role):
            return self.scalars(role)
        values, counts = self._masked(role, mask)
        filled = counts > 0
        starts = (np.cumsum(counts) - counts)[filled]
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if (low != high).any():
            row = int(np.flatnonzero(filled)[np.argmax(low != high)])
            raise ValueError(
                f"{role} ({printable(self.chosen[role])}) must be one number per response, the same for all its tokens, and "
                f"those of response {row + 1} go from {low.min():g} to {high.max():g}. {role}='' reads none, "
                "and a mask names tokens that do not count"
            )
        found = np.zeros(counts.size)
        found[filled] = low
        return found

    def _masked(self, role: str, mask: tuple[Array, Integers] | None) -> tuple[Array, Integers]:
        values, counts = self.lists(role)
        if mask is None or not np.array_equal(mask[1], counts):
            return values, counts
        stays = mask[0] > 0.0
        ends = np.concatenate([[0], np.cumsum(counts)])
        kept = np.concatenate([[0], np.cumsum(stays)])
        return values[stays], np.diff(kept[ends])

    def _checked(self, role: str, values: Array, counts: Integers) -> tuple[Array, Integers]:
        name = printable(self.chosen[role])
        if counts.size != self.findings.kept:
            raise ValueError(f"{role} ({name}) must have a value for each of {self.findings.kept} rows, and has {counts.size}")
        bad = np.isinf(values) if role == "advantage" and not self.is_list(role) else ~np.isfinite(values)
        if bad.any():
            row = int(np.searchsorted(np.cumsum(counts), int(np.argmax(bad)), side="right"))
            raise ValueError(
                f"{role} ({name}) must be finite numbers in every row, and row {row + 1} has {values[int(np.argmax(bad))]}; "
                f"{role}='' reads none"
            )
        return values, counts
