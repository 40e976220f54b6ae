"""A trainer's log with what a check reads beside the rewards: advantages, and log-probabilities of the policies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grpo_theory.checks.kept_rows import BATCH_ROWS, KeptRows, TokenLogs
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.logs import Findings, read_rollouts
from grpo_theory.logs.log_file import LogFile
from grpo_theory.logs.log_opening import Options
from grpo_theory.logs.log_source import Source
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import Array, Integers, counted, shown

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
READ = ("prompt", "reward", "length", "response", "step", "trajectory", "scores")
ROWS = ("where", "group_of", "unscored")
ROUNDED = 1e-3
"""A log-probability may be so far above 0 by rounding: logits up to 1,000 in float32 leave 1e-4."""


@dataclass(frozen=True, eq=False)
class TrainerLog:
    """The responses of a trainer's log with advantages and log-probabilities.

    Attributes
    ----------
    rollouts : RaggedRollouts
        One group per prompt and step.
    steps : ndarray of int64, shape (N,), or None
    lengths : ndarray, shape (N,), or None
        In tokens.
    advantages : ndarray, shape (N,), or None
        Groups in which a row has none are left out of the log, with a remark in `findings`.
    logprobs : mapping of str to TokenLogs
        By the names of `POLICIES`; those that the log has.
    columns : mapping of str to str
        The columns that were taken, by what they mean.
    findings : Findings
        What the reader remarked on.
    remarks : tuple of str
        What is wrong with log-probabilities that were read all the same; a sentence or two for each column.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> rows = [("prompt_id", "reward", "logprobs"), ("a", 1, -2.5), ("a", 0, 0.7), ("b", 1, -3.1), ("b", 1, -2.2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows(rows)
    ...     log = gt.checks.read_trainer_log(path)
    >>> log.logprobs["logprobs"].values.tolist()
    [-2.5, 0.7, -3.1, -2.2]
    >>> log.remarks[0].partition(". ")[0]
    'logprobs (logprobs) has 1 of 4 numbers above 0, the first of them 0.7 in row 2'
    """

    rollouts: RaggedRollouts
    steps: Integers | None
    lengths: Array | None
    advantages: Array | None
    logprobs: Mapping[str, TokenLogs]
    columns: Mapping[str, str]
    findings: Findings
    remarks: tuple[str, ...] = ()


def read_trainer_log(
    path: str | Path, columns: Mapping[str, Any] | None = None, rows: Mapping[str, Any] | None = None
) -> TrainerLog:
    """Read a trainer's log with its advantages and log-probabilities, all groups of all steps.

    Rewards, groups and steps are read by `gt.read_rollouts`.

    Parameters
    ----------
    path : str or Path
        A file, or a folder of files.
    columns : mapping, optional
        Names of columns that are not recognised. The keys prompt, reward, length, response, step, trajectory and scores are those
        of `gt.read_rollouts`. Further keys are advantage; logprobs, old_logprobs and rollout_logprobs (lists per token, or sums
        per response); and mask (0 for tokens that do not count). An empty name is for a column that should not be read.
    rows : mapping, optional
        Which rows are read: where, group_of and unscored, as in `gt.read_rollouts`.

    Raises
    ------
    ValueError
        As for `gt.read_rollouts`, and if a column that is named is not there. Also if advantages or log-probabilities are
        missing, not finite, or of different lengths.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> rows = [("prompt_id", "reward", "advantage"), ("a", 1, 0.5), ("a", 0, -0.5), ("b", 1, 0.0), ("b", 1, 0.0)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows(rows)
    ...     log = gt.checks.read_trainer_log(path)
    >>> log.advantages.tolist()
    [0.5, -0.5, 0.0, 0.0]
    """
    asked = {name: value for name, value in (columns or {}).items() if value is not None}
    unknown = [name for name in asked if name not in (*READ, *RECOGNISED)]
    if unknown:
        raise ValueError(f"columns must be of {', '.join((*READ, *RECOGNISED))}, got {shown(unknown[0])}")
    reading = {name: asked[name] for name in READ if name in asked} | _row_choice(rows or {})
    log = read_rollouts(path, **reading, steps="all")
    source = Source(path, Options(**reading), BATCH_ROWS)
    chosen = _chosen(source.files[0], asked, set(log.findings.columns.values()))
    kept = KeptRows(source, chosen, log.findings)
    mask = kept.lists("mask") if "mask" in chosen and kept.is_list("mask") else None
    advantages = kept.one_a_response("advantage", mask) if "advantage" in chosen else None
    logprobs = {name: kept.tokens(name, mask) for name in POLICIES if name in chosen}
    _check_alike(logprobs, chosen)
    first = next(iter(logprobs.values()), None)
    lengths = log.lengths
    if lengths is None and first is not None and first.by_token:
        lengths = first.counts.astype(np.float64)
    remarks = tuple(filter(None, (_above_zero(f"{name} ({printable(chosen[name])})", one) for name, one in logprobs.items())))
    taken = {**log.findings.columns, **chosen}
    read = TrainerLog(log.rollouts, log.steps, lengths, advantages, logprobs, taken, log.findings, remarks)
    return read if advantages is None or not np.isnan(advantages).any() else _with_whole_groups(read, advantages)


def _with_whole_groups(log: TrainerLog, advantages: Array) -> TrainerLog:
    """Return the groups of a log in which every row has an advantage, with a remark; raise ValueError if there are none."""
    groups, name = log.rollouts, printable(log.columns["advantage"])
    lacking = np.isnan(advantages)
    whole = np.ones(groups.batch_size, dtype=np.bool_)
    whole[groups.index[lacking]] = False
    if not whole.any():
        raise ValueError(f"advantage ({name}) must have a number in every row of a group at least; advantage='' reads none")
    lost = f"{counted(int((~whole).sum()), 'group')} with {'it' if lacking.sum() == 1 else 'them'}"
    remark = f"{counted(int(lacking.sum()), 'row')} without a number in {name}: the check leaves out {lost}."
    rows = whole[groups.index]
    index = (np.cumsum(whole) - 1)[groups.index[rows]]
    scores = None if groups.scores is None else groups.scores[rows]
    return replace(
        log,
        rollouts=RaggedRollouts.from_index(groups.prompts[whole], index, groups.rewards[rows], scores),
        steps=None if log.steps is None else log.steps[rows],
        lengths=None if log.lengths is None else log.lengths[rows],
        advantages=advantages[rows],
        logprobs={
            name: TokenLogs(one.values[np.repeat(rows, one.counts)], one.counts[rows], one.by_token)
            for name, one in log.logprobs.items()
        },
        findings=replace(log.findings, remarks=(*log.findings.remarks, remark)),
    )


def _row_choice(rows: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [name for name in rows if name not in ROWS]
    if unknown:
        raise ValueError(f"rows must be of {', '.join(ROWS)}, got {shown(unknown[0])}")
    return {name: value for name, value in rows.items() if value is not None}


def _above_zero(column: str, logs: TokenLogs) -> str | None:
    """Return a remark on log-probabilities that are above 0, None if none is."""
    above = logs.values > ROUNDED
    if not above.any():
        return None
    first = int(np.argmax(above))
    row = int(np.searchsorted(np.cumsum(logs.counts), first, side="right"))
    return (
        f"{column} has {int(above.sum()):,} of {above.size:,} numbers above 0, the first of them {logs.values[first]:.3g} in row "
        f"{row + 1}. A log-probability is at most 0: the column holds something else, or tokens that do not count, whose mask "
        "must then be named. Ratios of this column are not to be trusted."
    )


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
