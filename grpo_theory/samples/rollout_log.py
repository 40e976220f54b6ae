"""Rollouts as a trainer or a user logged them, read from tables of any size."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.samples.column_names import Reward
from grpo_theory.samples.findings import Findings
from grpo_theory.samples.log_groups import NO_RESPONSE, LogGroups, Selection, Steps, check_steps
from grpo_theory.samples.ragged import RaggedRollouts
from grpo_theory.samples.reward_counts import RewardCounts
from grpo_theory.samples.reward_tally import RewardTally
from grpo_theory.user_text import printable

if TYPE_CHECKING:
    from grpo_theory.samples.log_rows import Source

BATCH_ROWS = 2**16


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
    """

    rollouts: RaggedRollouts
    lengths: Array | None
    steps: Integers | None
    findings: Findings


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
    source, groups = _source(path, reward, named, batch_rows), LogGroups()
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
    _check_sizes(findings)
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
    source, groups, tally = _source(path, reward, named, batch_rows), LogGroups(), RewardTally()
    for batch in source.read(groups):
        tally.add(batch.groups, batch.rewards)
    chosen = groups.select(steps)
    counts = tally.counts(chosen.kept)
    findings = _findings(source, groups, chosen, counts, int(counts.sizes.sum()), 0)
    _check_sizes(findings)
    return counts, findings


def _source(path: str | Path, reward: Reward, named: dict[str, str | None], batch_rows: int) -> "Source":
    from grpo_theory.samples.log_rows import Source  # pyarrow is slow to import, and not always wanted

    return Source(path, reward, named, batch_rows)


def _repeats(rollouts: RaggedRollouts, responses: np.ndarray) -> int:
    """Return how many rows repeat the group, response and reward of one before; those without a response do not."""
    known = np.flatnonzero(responses != NO_RESPONSE)
    columns = [array[known] for array in (rollouts.rewards, responses, rollouts.index)]
    order = np.lexsort(columns)
    same = [array[order][1:] == array[order][:-1] for array in columns]
    return int(np.logical_and.reduce(same).sum())


def _check_sizes(findings: Findings) -> None:
    if max(findings.sizes) == 1:
        which = f"each of the {findings.groups} groups" if findings.groups > 1 else "the only group"
        at = " at its step" if findings.steps else ""
        prompt = printable(findings.columns["prompt"])
        raise ValueError(
            f"prompt ({prompt}) must be shared by the responses to a prompt, and {which} has one response{at}: "
            "one response says nothing about groups"
        )


def _findings(source: "Source", groups: LogGroups, chosen: Selection, counts: RewardCounts, kept: int, repeats: int) -> Findings:
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
