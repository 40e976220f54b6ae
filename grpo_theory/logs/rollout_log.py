"""Rollouts as a trainer or a user logged them, read from tables of any size, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from grpo_theory.intervals.ragged import RaggedRollouts, RewardCounts
from grpo_theory.logs.column_names import weighted_sum
from grpo_theory.logs.findings import Findings, check_sizes, order_remark, reward_remarks, size_remark
from grpo_theory.logs.log_groups import NO_RESPONSE, LogGroups, Selection, Steps, check_steps
from grpo_theory.logs.log_opening import Columns, Options, Unscored
from grpo_theory.logs.log_source import Source
from grpo_theory.logs.reward_choice import Reward
from grpo_theory.logs.reward_counts import levels
from grpo_theory.logs.reward_tally import RewardTally
from grpo_theory.validation import Array, Integers

BATCH_ROWS = 2**16
NO_SKETCHES = ("scores", "score_features", "gradients", "gradient", "grads", "embedding", "features")
"""Lists of numbers that might be sketches, and might not."""
NOTHING = (
    "the log has no row left: each is left out by where, or is of evaluation, or has no reward that is a number. Name the column "
    "of the rewards with --reward, and choose rows with --where"
)


@dataclass(frozen=True, eq=False)
class RolloutLog:
    """A log of rollouts that was read whole.

    Attributes
    ----------
    rollouts : RaggedRollouts
        N responses in B groups. A group's id is its prompt's; (step, prompt) where all groups of several steps were asked for.
    lengths : ndarray, shape (N,), or None
    steps : ndarray, shape (N,), or None
    findings : Findings
        What the log holds; print it.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     log = gt.read_rollouts(path)
    >>> log.rollouts.batch_size, log.findings.rewards
    (3, {0.0: 6, 1.0: 6})
    """

    rollouts: RaggedRollouts
    lengths: Array | None
    steps: Integers | None
    findings: Findings


def read_rollouts(
    path: str | Path,
    *,
    prompt: str | Sequence[str] | None = None,
    reward: Reward = None,
    length: str | None = None,
    response: str | None = None,
    step: str | None = None,
    scores: str | None = None,
    steps: Steps = "newest",
    trajectory: str | None = None,
    group_of: int | None = None,
    where: Mapping[str, object] | None = None,
    unscored: Unscored = "error",
    reward_tolerance: float = 0.0,
    batch_rows: int = BATCH_ROWS,
) -> RolloutLog:
    """Read rollouts from a table, one row per response: CSV, JSON lines or Parquet, or a folder of such files.

    Columns are recognised by the names that TRL (log_completions), verl (rollout_data_dir) and users give them
    (docs/rollouts.md). Other columns are named here. The responses to one prompt at one step are a group. A prompt
    without an id is known by its text, a conversation by all its messages.

    Parameters
    ----------
    path : str or Path
    prompt, length, response, step : str, optional
        Names of columns. They hold the prompt's id or text (several names together are its id), the response's length, its id or
        text, and its training step. Repeated rows are found by the response. None takes a recognised column, an empty name
        none. All names may be paths through objects and lists, as rewards.correct.score, or messages.0 for the first of a list.
    reward : str, list of str or dict of str to float, optional
        The column of the reward, or columns that are added up, with weights if it is a dict. A weight may be negative, as for a
        length penalty. As in TRL, a missing part counts as 0 in a row that has another part. Each reward of a list makes a
        response. The form n_correct/k is a number of successes of k responses, and pass_rate@n a share of n. Both k and n may be
        columns or numbers.
    scores : str, optional
        A column of lists of equal length, or the prefix of numbered columns (sketch_ for sketch_0, sketch_1, ...).
    steps : "newest", "last", int, (int, int), or "all"
        Which groups are used. With "newest" they are each prompt's newest group, so that groups are of different prompts, as all
        intervals assume. With "last" they are those of the last step, and with a number those of that step. A pair takes each
        prompt's newest between a first and a last step. With "all" there may be several groups of one prompt; intervals then come
        out too narrow.
    trajectory : str, optional
        The id of a response whose turns are rows of their own. None looks for one; an empty name reads each row as a response.
    group_of : int, optional
        The number of successive rows of a prompt that are a group; no prompt need be named.
    where : dict, optional
        The rows that are used: a value, or a list of values, by column. What file paths say (step=3, seed_1) counts as columns
        too, and `path` chooses files. A star stands for any part of a text.
    unscored : "error", "leave" or "zero"
        What becomes of rows without a reward. "error" names them, "leave" leaves them out and counts them, "zero" gives them a
        reward of 0.
    reward_tolerance : float, default 0
        Rewards that differ by no more than this are treated as equal, and replaced by their mean.
    batch_rows : int, default 65536
        About how many rows are read at a time.

    Returns
    -------
    RolloutLog

    Raises
    ------
    ValueError
        If a file is missing, empty, broken or truncated, or a column is missing (those found are listed). If rewards are missing
        or not finite numbers (rows are named), or scores differ in length. If only part of the rows has a step, or every prompt
        has one response.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("question", "score"), *[(f"q{n // 4}", n % 2) for n in range(12)]])
    ...     log = gt.read_rollouts(path, prompt="question", reward="score")
    >>> log.rollouts.prompts.tolist(), log.findings.sizes
    (['q0', 'q1', 'q2'], {4: 3})
    """
    check_steps(steps)
    rewarded = prompt, reward, length, response, step, scores
    source, groups = Source(path, Options(*rewarded, trajectory, group_of, where or {}, unscored), batch_rows), LogGroups()
    batches = list(source.read(groups))
    if not any(batch.groups.size for batch in batches):
        raise ValueError(NOTHING)
    chosen = groups.select(steps)
    index = np.concatenate([batch.groups for batch in batches])
    rows = chosen.kept[index]

    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(batch, name) for batch in batches]
        return None if parts[0] is None else np.concatenate(parts)[rows]

    rewards, responses = _near(joined("rewards"), reward_tolerance), joined("responses")
    rollouts = RaggedRollouts.from_index(groups.ids(chosen, steps), index[rows], rewards, joined("scores"))
    repeats = 0 if responses is None else _repeats(rollouts, responses)
    findings = _findings(source, groups, chosen, rollouts.counts, int(rows.sum()), repeats)
    check_sizes(findings)
    return RolloutLog(rollouts, joined("lengths"), joined("steps"), findings)


def read_reward_counts(
    path: str | Path,
    *,
    prompt: str | Sequence[str] | None = None,
    reward: Reward = None,
    response: str | None = None,
    step: str | None = None,
    steps: Steps = "newest",
    trajectory: str | None = None,
    group_of: int | None = None,
    where: Mapping[str, object] | None = None,
    unscored: Unscored = "error",
    reward_tolerance: float = 0.0,
    batch_rows: int = BATCH_ROWS,
) -> tuple[RewardCounts, Findings]:
    """Count the rewards of a log batch by batch, in memory that grows with its groups and not with its rows.

    Parameters, errors and what counts as a group are those of `read_rollouts`; repeated rows within a step are not counted.

    Returns
    -------
    RewardCounts, Findings

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     counts, findings = gt.read_reward_counts(path)
    >>> counts.counts.toarray().tolist(), findings.groups
    ([[2, 2], [2, 2], [2, 2]], 3)
    """
    check_steps(steps)
    rewarded = prompt, reward, "", response, step, ""
    source = Source(path, Options(*rewarded, trajectory, group_of, where or {}, unscored), batch_rows)
    groups, tally = LogGroups(), RewardTally()
    for batch in source.read(groups):
        tally.add(batch.groups, batch.rewards)
    if not groups.pairs:
        raise ValueError(NOTHING)
    chosen = groups.select(steps)
    counts = _with_levels(tally.counts(chosen.kept), reward_tolerance)
    findings = _findings(source, groups, chosen, counts, int(counts.sizes.sum()), 0)
    check_sizes(findings)
    return counts, findings


def _near(rewards: np.ndarray | None, tolerance: float) -> Array:
    """Return rewards (n,), those that differ by little as one."""
    values, inverse = np.unique(np.asarray(rewards), return_inverse=True)
    return levels(values, tolerance)[inverse]


def _with_levels(counts: RewardCounts, tolerance: float) -> RewardCounts:
    """Return counts of rewards of which those that differ by little are one."""
    values, inverse = np.unique(levels(counts.values, tolerance), return_inverse=True)
    if values.size == counts.values.size:
        return counts
    to_level = sparse.csr_array((np.ones(inverse.size, dtype=np.int64), (np.arange(inverse.size), inverse)))
    return RewardCounts(values, sparse.csr_array(counts.counts @ to_level))


def _repeats(rollouts: RaggedRollouts, responses: np.ndarray) -> int:
    """Return how many rows repeat the group, response and reward of one before; those without a response do not."""
    known = np.flatnonzero(responses != NO_RESPONSE)
    columns = [array[known] for array in (rollouts.rewards, responses, rollouts.index)]
    order = np.lexsort(columns)
    same = [array[order][1:] == array[order][:-1] for array in columns]
    return int(np.logical_and.reduce(same).sum())


def _findings(source: Source, groups: LogGroups, chosen: Selection, counts: RewardCounts, kept: int, repeats: int) -> Findings:
    columns = source.columns
    taken: dict[str, str | None] = {"prompt": " and ".join(columns.prompt), "reward": _rewarded(columns)}
    taken |= {"length": columns.length, "response": columns.response, "trajectory": columns.trajectory}
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
        left_out=dict(source.left_out),
        files_left_out={
            why: tuple(source.folder.relative(one).as_posix() for one in files) for why, files in source.folder.left_out.items()
        },
        remarks=tuple(_remarks(source, counts)),
    )


def _rewarded(columns: Columns) -> str:
    """Return what the reward is made of."""
    if columns.counted is not None:
        one = columns.counted
        return f"{one.successes} {'times' if one.rate else 'of'} {one.total}"
    return weighted_sum(columns.reward)


def _remarks(source: Source, counts: RewardCounts) -> Iterator[str]:
    """Yield sentences on what was read otherwise than it seems, and on what speaks against the log."""
    columns, group_of = source.columns, source.group_of
    yield from source.reading.remarks
    if columns.step is not None and columns.step not in source.files[0].kinds and columns.step in source.files[0].constants:
        yield f"The steps are the numbers ({columns.step}) in the files' paths (--step '' reads all files as one step)."
    if source.options.scores is None and not columns.scores:
        lists = [path for path in NO_SKETCHES if path in source.fields and source.fields[path].kind == "list"]
        if lists and lists[0] not in columns.reward:
            yield f"{lists[0]} is not taken for sketches of gradients; if it holds them, name it (--scores {lists[0]})."
    if group_of is not None:
        yield f"Each {group_of} rows of a prompt one after another are read as a group."
    elif columns.trajectory is None and columns.counted is None:
        sizes = source.group_sizes()
        yield from filter(None, (order_remark(source.runs, sizes, None) or size_remark(Counter(sizes.tolist()), None),))
    yield from reward_remarks(counts)
