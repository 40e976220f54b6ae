"""A trainer's log with what a check reads beside the rewards: advantages, and log-probabilities of the policies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.samples import Findings, RaggedRollouts, read_rollouts
from grpo_theory.samples.column_values import kind_of, numbers, whole
from grpo_theory.samples.log_file import LogFile
from grpo_theory.samples.log_options import Options
from grpo_theory.samples.log_source import Source
from grpo_theory.samples.row_spreading import response_tables
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import shown

RECOGNISED: dict[str, tuple[str, ...]] = {
    "advantage": ("advantage", "advantages", "adv"),
    "logprobs": ("current_logprobs", "policy_logprobs", "curr_logprobs", "logprobs", "log_probs", "logps", "per_token_logps"),
    "old_logprobs": ("old_logprobs", "old_log_probs", "old_logps", "old_per_token_logps", "prev_logprobs", "proximal_logprobs"),
    "rollout_logprobs": (
        "rollout_logprobs",
        "rollout_log_probs",
        "sampling_logprobs",
        "sampling_per_token_logps",
        "generation_logprobs",
        "inference_logprobs",
        "vllm_logprobs",
        "behave_logprobs",
    ),
    "mask": ("token_loss_mask", "response_mask", "completion_mask", "loss_mask"),
}
"""Names by what they mean, beside those of `gt.read_rollouts`; the first that a log has is taken, in capitals or not.

old_logprobs and rollout_log_probs are verl's names, old_per_token_logps and sampling_per_token_logps TRL's, prev_logprobs,
generation_logprobs and token_loss_mask NeMo-RL's, proximal_logprobs and behave_logprobs those of decoupled PPO.
"""
POLICIES = ("logprobs", "old_logprobs", "rollout_logprobs")
"""The policy that is trained, the one at the start of the update, and the one that sampled, as its own engine computed it."""
READ = ("prompt", "reward", "length", "response", "step", "scores")
BATCH_ROWS = 2**16


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


@dataclass(frozen=True, eq=False)
class TrainerLog:
    """The N responses of a log.

    Attributes
    ----------
    rollouts : RaggedRollouts
        One group per prompt and step.
    steps : ndarray of int64, shape (N,), or None
    lengths : ndarray, shape (N,), or None
        In tokens.
    advantages : ndarray, shape (N,), or None
    logprobs : mapping of str to TokenLogs
        By the names of `POLICIES`; those that the log has.
    columns : mapping of str to str
        The columns that were taken, by what they mean.
    findings : Findings
        What the reader remarked on.
    """

    rollouts: RaggedRollouts
    steps: Integers | None
    lengths: Array | None
    advantages: Array | None
    logprobs: Mapping[str, TokenLogs]
    columns: Mapping[str, str]
    findings: Findings


def read_trainer_log(path: str | Path, columns: Mapping[str, Any] | None = None) -> TrainerLog:
    """Read a trainer's log with its advantages and log-probabilities, all groups of all steps.

    Rewards, groups and steps are read by `gt.read_rollouts`.

    Parameters
    ----------
    path : str or Path
        A file, or a folder of files.
    columns : mapping, optional
        Names of columns that are not recognised: prompt, reward, length, response, step and scores as in `gt.read_rollouts`;
        advantage; logprobs, old_logprobs and rollout_logprobs (lists per token, or sums per response); mask (0 for tokens that
        do not count). An empty name is for a column that should not be read.

    Raises
    ------
    ValueError
        As `gt.read_rollouts`; if a column that is named is not there; if advantages or log-probabilities are missing, not finite,
        or of other lengths than each other.
    """
    asked = {name: value for name, value in (columns or {}).items() if value is not None}
    unknown = [name for name in asked if name not in (*READ, *RECOGNISED)]
    if unknown:
        raise ValueError(f"columns must be of {', '.join((*READ, *RECOGNISED))}, got {shown(unknown[0])}")
    log = read_rollouts(path, **{name: asked[name] for name in READ if name in asked}, steps="all")
    source = Source(path, Options(**{name: asked[name] for name in READ if name in asked}), BATCH_ROWS)
    chosen = _chosen(source.files[0], asked, set(log.findings.columns.values()))
    rows = _Rows(source, chosen, log.findings)
    mask = rows.lists("mask") if "mask" in chosen and rows.is_list("mask") else None
    advantages = rows.one_a_response("advantage", mask) if "advantage" in chosen else None
    logprobs = {name: rows.tokens(name, mask) for name in POLICIES if name in chosen}
    _check_alike(logprobs, chosen)
    first = next(iter(logprobs.values()), None)
    lengths = log.lengths
    if lengths is None and first is not None and first.by_token:
        lengths = first.counts.astype(np.float64)
    return TrainerLog(log.rollouts, log.steps, lengths, advantages, logprobs, {**log.findings.columns, **chosen}, log.findings)


def _chosen(file: LogFile, asked: Mapping[str, Any], taken: set[str]) -> dict[str, str]:
    """Return the columns of a file by what they mean, those recognised and those named."""
    plain = {one.strip().lower(): one for one in reversed(list(file.kinds)) if one not in taken}
    chosen = {}
    for role, names in RECOGNISED.items():
        name = asked.get(role)
        if name is None:
            name = next((plain[one] for one in names if one in plain), None)
        elif name and name not in file.kinds:
            raise ValueError(f"{role} must be a column of the log, got {shown(name)}; found {listed(file.kinds, [name])}")
        if name:
            chosen[role] = name
    return chosen


class _Rows:
    """The rows that `read_rollouts` kept, one a response, column by column."""

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
        read = list(dict.fromkeys([*needed, lead, *([split] if split else [])]))
        for file in self.source.files:
            for held in response_tables(file, read, lead, BATCH_ROWS):
                table, _ = self.source.used(held, np.arange(held.num_rows))
                kept = np.ones(table.num_rows, dtype=np.bool_)
                if step and self.findings.repeated_steps:
                    kept = ~np.isin(numbers(table[step], "step"), self.findings.repeated_steps)
                yield table[name], kept

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
                f"those of response {row + 1} go from {low.min():g} to {high.max():g}; {role}='' reads none, "
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
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.searchsorted(np.cumsum(counts), int(np.argmax(bad)), side="right"))
            raise ValueError(
                f"{role} ({name}) must be finite numbers in every row, and row {row + 1} has {values[int(np.argmax(bad))]}; "
                f"{role}='' reads none"
            )
        return values, counts


def _check_alike(logprobs: Mapping[str, TokenLogs], chosen: Mapping[str, str]) -> None:
    """Raise ValueError unless all policies have as many log-probabilities of each response."""
    named = list(logprobs.items())
    for role, one in named[1:]:
        if one.by_token != named[0][1].by_token or not np.array_equal(one.counts, named[0][1].counts):
            first = named[0][0]
            raise ValueError(
                f"{first} ({printable(chosen[first])}) and {role} ({printable(chosen[role])}) must have as many numbers in every "
                f"row, and differ; {role}='' leaves one out"
            )
