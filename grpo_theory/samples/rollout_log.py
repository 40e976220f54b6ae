"""Rollouts as a trainer or a user logged them, read from tables of any size, batch by batch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from grpo_theory.arrays import Array, Integers
from grpo_theory.samples.column_names import Columns, Reward, choose
from grpo_theory.samples.column_values import hashes, ids, numbers, refuse_rows, vectors
from grpo_theory.samples.findings import Findings, RolloutLog, check_sizes
from grpo_theory.samples.log_file import LogFile, files_of
from grpo_theory.samples.log_groups import NO_RESPONSE, LogGroups, Selection, Steps, check_steps
from grpo_theory.samples.ragged import RaggedRollouts
from grpo_theory.samples.reward_counts import RewardCounts
from grpo_theory.samples.reward_tally import RewardTally
from grpo_theory.user_text import printable
from grpo_theory.validation import as_count, shown

BATCH_ROWS = 2**16


def read_rollouts(
    path: str | Path,
    *,
    prompt: str | None = None,
    reward: Reward = None,
    length: str | None = None,
    response: str | None = None,
    step: str | None = None,
    scores: str | None = None,
    steps: Steps = "newest",
    batch_rows: int = BATCH_ROWS,
) -> RolloutLog:
    """Read rollouts from a table, one row a response: CSV, JSON lines or Parquet, or a folder of such files.

    Columns are recognised by the names under which TRL (log_completions) and verl (rollout_data_dir) write them and by those that
    users give them (docs/rollouts.md); others are named here. The responses to one prompt at one step are a group. A prompt
    without an id is known by its text, a conversation by all its messages.

    Parameters
    ----------
    path : str or Path
    prompt, length, response, step : str, optional
        Names of columns: the prompt's id or text, the response's length, its id or text (by which repeated rows are found), the
        training step at which it was sampled. None takes a recognised column, an empty name none.
    reward : str, list of str or dict of str to float, optional
        The column of the reward, or columns that are added up, with weights if it is a dict. As in TRL, a part that is missing in
        a row where another is not counts for 0.
    scores : str, optional
        A column of lists of equal length, or what stands before the numbers of columns (sketch_ for sketch_0, sketch_1, ...).
    steps : "newest", "last", int, (int, int), or "all"
        Which groups are used: of each prompt the newest, so that groups are of different prompts, as all intervals assume; only
        those of the last step, or of a single one; each prompt's newest between a first and a last step; all, several of one
        prompt among them, from which intervals come out too narrow.
    batch_rows : int, default 65536
        So many rows, about, are looked at at a time.

    Returns
    -------
    RolloutLog

    Raises
    ------
    ValueError
        On a file that is missing, empty, broken or truncated; a missing column (those found are listed); rewards that are missing
        or no finite numbers (rows are named); scores of unequal length; steps that are given in part of the rows; a log that has
        one response to every prompt.
    """
    named = {"prompt": prompt, "length": length, "response": response, "step": step, "scores": scores}
    check_steps(steps)
    source, groups = Source(path, reward, named, batch_rows), LogGroups()
    batches = list(source.read(groups))
    chosen = groups.select(steps)
    index = np.concatenate([batch.groups for batch in batches])
    rows = chosen.kept[index]

    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(batch, name) for batch in batches]
        return None if parts[0] is None else np.concatenate(parts)[rows]

    rewards, responses = joined("rewards"), joined("responses")
    rollouts = RaggedRollouts.from_index(groups.ids(chosen, steps), index[rows], rewards, joined("scores"))  # type: ignore[arg-type]
    repeats = 0 if responses is None else _repeats(rollouts, responses)
    findings = _findings(source, groups, chosen, rollouts.counts, int(rows.sum()), repeats)
    check_sizes(findings)
    return RolloutLog(rollouts, joined("lengths"), joined("steps"), findings)


def read_reward_counts(
    path: str | Path,
    *,
    prompt: str | None = None,
    reward: Reward = None,
    response: str | None = None,
    step: str | None = None,
    steps: Steps = "newest",
    batch_rows: int = BATCH_ROWS,
) -> tuple[RewardCounts, Findings]:
    """Count the rewards of a log batch by batch, in memory that grows with its groups and not with its rows.

    Parameters, errors and what counts as a group are those of `read_rollouts`; repeated rows within a step are not counted.

    Returns
    -------
    RewardCounts, Findings
    """
    named = {"prompt": prompt, "length": "", "response": response, "step": step, "scores": ""}
    check_steps(steps)
    source, groups, tally = Source(path, reward, named, batch_rows), LogGroups(), RewardTally()
    for batch in source.read(groups):
        tally.add(batch.groups, batch.rewards)
    chosen = groups.select(steps)
    counts = tally.counts(chosen.kept)
    findings = _findings(source, groups, chosen, counts, int(counts.sizes.sum()), 0)
    check_sizes(findings)
    return counts, findings


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


def _repeats(rollouts: RaggedRollouts, responses: np.ndarray) -> int:
    """Return how many rows repeat the group, response and reward of one before; those without a response do not."""
    known = np.flatnonzero(responses != NO_RESPONSE)
    columns = [array[known] for array in (rollouts.rewards, responses, rollouts.index)]
    order = np.lexsort(columns)
    same = [array[order][1:] == array[order][:-1] for array in columns]
    return int(np.logical_and.reduce(same).sum())


def _findings(source: Source, groups: LogGroups, chosen: Selection, counts: RewardCounts, kept: int, repeats: int) -> Findings:
    columns = source.columns
    weighed = [name if weight == 1.0 else f"{weight:g} * {name}" for name, weight in columns.reward.items()]
    taken = {"prompt": columns.prompt, "reward": " + ".join(weighed), "length": columns.length, "response": columns.response}
    taken |= {"step": columns.step, "scores": " ... ".join(dict.fromkeys((*columns.scores[:1], *columns.scores[-1:])))}
    sizes, how_many = np.unique(counts.sizes, return_counts=True)
    totals = np.asarray(counts.counts.sum(axis=0)).ravel()
    return Findings(
        files=len(source.files),
        rows=source.rows,
        kept=kept,
        columns={role: name for role, name in taken.items() if name},
        ignored=columns.ignored,
        prompts=len({prompt for (_, prompt), stays in zip(groups.pairs, chosen.kept, strict=True) if stays}),
        groups=counts.prompts,
        sizes=dict(zip(sizes.tolist(), how_many.tolist(), strict=True)),
        rewards=dict(zip(counts.values.tolist(), totals.tolist(), strict=True)),
        uniform=int(counts.uniform.sum()),
        steps=chosen.steps,
        other_steps=chosen.other_steps,
        repeated_steps=chosen.repeated,
        older_groups=chosen.older,
        duplicates=repeats,
    )
