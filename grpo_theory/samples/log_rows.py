"""The rows of a log, batch by batch, as arrays."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from grpo_theory.arrays import Array, Integers
from grpo_theory.samples.column_names import Columns, Reward, choose
from grpo_theory.samples.column_values import hashes, ids, numbers, refuse_rows, vectors
from grpo_theory.samples.log_file import LogFile, files_of
from grpo_theory.samples.log_groups import LogGroups
from grpo_theory.user_text import printable
from grpo_theory.validation import as_count, shown


class Rows(NamedTuple):
    """Rows of a batch: their groups and rewards (n,), and what else the log has of each."""

    groups: Integers
    rewards: Array
    steps: Integers | None
    lengths: Array | None
    responses: np.ndarray | None
    scores: Array | None


class Source:
    """The files of a log, and the columns that are read from them."""

    def __init__(self, path: str | Path, reward: Reward, named: Mapping[str, str | None], batch_rows: int) -> None:
        if not isinstance(path, str | Path):
            raise TypeError(f"path must be a file's or a folder's name, got {shown(path)}")
        if path == "":
            raise ValueError("path must be a file's or a folder's name, and is empty")
        self.batch_rows = as_count("batch_rows", batch_rows)
        self.rows = 0
        self.files = [LogFile(one) for one in files_of(Path(path))]
        self.columns: Columns = choose(self.files[0].kinds, reward, named)

    def read(self, groups: LogGroups) -> Iterator[Rows]:
        """Yield all rows, batch by batch."""
        columns, width = self.columns, None
        for file in self.files:
            before = 0
            for table in file.batches(columns.needed, self.batch_rows):
                where = file.path, before
                rewards = _rewards(table, columns, *where)
                steps = _whole_steps(table, columns.step, *where)
                prompts = ids(table[columns.prompt], f"prompt ({columns.prompt})")
                if prompts.null_count:
                    row = before + int(np.argmax(prompts.is_null().to_numpy(zero_copy_only=False))) + 1
                    raise ValueError(
                        f"prompt ({printable(columns.prompt)}) must be given for every row; row {row} of {printable(file.path)} "
                        "has none"
                    )
                name = columns.response
                responses = None if name is None else hashes(table[name], f"response ({name})")
                lengths = None if columns.length is None else numbers(table[columns.length], "length")
                if lengths is not None:
                    bad = ~(np.isfinite(lengths) & (lengths >= 0.0))
                    refuse_rows(
                        bad, table[columns.length], "length", *where, "finite numbers of at least 0 (length='' reads none)"
                    )
                scores = vectors(table, columns.scores, *where, width) if columns.scores else None
                width = None if scores is None else scores.shape[1]
                codes = prompts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
                prompts_of_rows, groups_of_rows = groups.number(codes, prompts.dictionary.to_pylist(), steps)
                if columns.step is not None:
                    groups.mark(prompts_of_rows, rewards, steps, responses)
                before += rewards.size
                self.rows += rewards.size
                yield Rows(groups_of_rows, rewards, None if columns.step is None else steps, lengths, responses, scores)
        if not self.rows:
            raise ValueError(f"{printable(self.files[0].path)} has columns, and no rows")


def _rewards(table: pa.Table, columns: Columns, path: Path, before: int) -> Array:
    """Return the weighted sums of the reward's columns; a part counts for 0 where another is there."""
    parts = np.stack([numbers(table[name], f"reward ({name})") for name in columns.reward])
    missing = np.isnan(parts)
    # Sums that overflow, or are inf - inf, are refused below with the numbers of their rows.
    with np.errstate(over="ignore", invalid="ignore"):
        rewards = np.array(list(columns.reward.values())) @ np.where(missing, 0.0, parts)
    bad = missing.all(axis=0) | np.isinf(parts).any(axis=0) | ~np.isfinite(rewards)
    refuse_rows(bad, table[next(iter(columns.reward))], "reward", path, before)
    return rewards


def _whole_steps(table: pa.Table, name: str | None, path: Path, before: int) -> Integers:
    """Return the steps of the rows, 0 where the log has none."""
    if name is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    steps = numbers(table[name], f"step ({name})")
    refuse_rows(
        ~(np.abs(steps) < 2**53) | (steps != np.floor(steps)),
        table[name],
        "step",
        path,
        before,
        "whole numbers in every row (step='' reads none)",
    )
    return steps.astype(np.int64)
