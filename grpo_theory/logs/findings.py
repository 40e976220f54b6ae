"""What a reader found in a log of rollouts, and what the rows of the log say against it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from grpo_theory.intervals.rollouts import RewardCounts
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import counted

FEW = 8
"""Up to this number, different values or sizes are listed one by one."""
TINY = 1e-3
"""Rewards of a group that differ by no more than this share of the range of all rewards are remarked on."""


@dataclass(frozen=True)
class Findings:
    r"""What a log of rollouts contains and what was left out of it; print it for a summary.

    Attributes
    ----------
    schema : str
        The name of the schema by which it was read.
    columns : mapping of str to str
        The expressions that were taken, by what they mean.
    files, rows : int
        The numbers of files and of rows that were read.
    left_out : mapping of str to int
        What was left out, and how many there were of it.
    steps : tuple of float
        The steps of the groups that are used, ascending; empty if the log has none.
    prompts : int
        The number of different prompts among the groups that are used.
    sizes : mapping of int to int
        How many groups there are of each size, ascending.
    rewards : mapping of float to int
        How often each reward came, ascending; empty if the log has none.
    uniform : int
        The number of groups whose rewards are all equal.
    remarks : tuple of str
        Sentences on what was read otherwise than it seems, and on what the rows say against the log.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 4 // 3) for n in range(12)]])
    ...     findings = gt.read_rollouts(path).findings
    >>> print("\n".join(findings.reading[:4]))
    12 rows in 1 file by the schema plain
    columns: prompt = prompt_id, reward = reward
    3 prompts, 3 groups of responses
    group sizes: 3 of 4; rewards: 0 (9), 1 (3); in 0 of 3 groups all are equal
    """

    schema: str
    columns: Mapping[str, str]
    files: int
    rows: int
    left_out: Mapping[str, int]
    steps: tuple[float, ...]
    prompts: int
    sizes: Mapping[int, int]
    rewards: Mapping[float, int]
    uniform: int
    remarks: tuple[str, ...]

    @property
    def groups(self) -> int:
        """The number of groups that are used, one per prompt and step."""
        return sum(self.sizes.values())

    @property
    def kept(self) -> int:
        """The number of responses that are used."""
        return sum(size * many for size, many in self.sizes.items())

    @property
    def left(self) -> tuple[str, ...]:
        """What was left out, and how much of it."""
        parts = [(many, what.split("s ", 1)) for what, many in self.left_out.items()]
        return tuple(f"{counted(many, noun)} {rest}" for many, (noun, rest) in parts)

    @property
    def reading(self) -> tuple[str, ...]:
        """How the log was read, and how much there is of everything; one line each."""
        left = ", ".join(self.left)
        sizes, rewards, steps = (
            ", ".join(one.format(value, many) for value, many in held.items())
            if len(held) <= FEW
            else f"{len(held)} from {min(held):g} to {max(held):g}"
            for one, held in (("{1} of {0}", self.sizes), ("{0:g} ({1})", self.rewards), ("{0:g}", dict.fromkeys(self.steps)))
        )
        return (
            f"{counted(self.rows, 'row')} in {counted(self.files, 'file')} by the schema {self.schema}"
            + (f"; left out: {left}" if left else ""),
            "columns: " + ", ".join(f"{role} = {printable(text)}" for role, text in self.columns.items()),
            f"{counted(self.prompts, 'prompt')}, {counted(self.groups, 'group')} of responses"
            + (f" at {counted(len(self.steps), 'step')} ({steps})" if self.steps else ""),
            f"group sizes: {sizes}; rewards: {rewards or 'none'}; in {self.uniform} of {self.groups} groups all are equal",
            *self.remarks,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with the log, or with what is said from it; one sentence each."""
        small, said = sum(many for size, many in self.sizes.items() if size < 4), []
        if len(self.rewards) == 1:
            said.append(f"All rewards are equal ({min(self.rewards):g}): they tell nothing about groups or gradients.")
        if self.groups > self.prompts:
            told = f"The {self.groups} groups are of {counted(self.prompts, 'prompt')}, and intervals take them for independent:"
            said.append(f"{told} they come out too narrow (--steps newest uses each prompt's newest group).")
        if len(self.steps) > 1:
            said.append(
                f"The groups are of {len(self.steps)} steps, between which the policy changed. What is said is about the average "
                "of the policies (--steps last takes the last step alone)."
            )
        if small:
            held = f"{counted(small, 'group')} of {self.groups} {'has' if small == 1 else 'have'}"
            said.append(f"{held} fewer than four responses, too few for c1, c2 and c3.")
        return tuple(said)

    def __str__(self) -> str:
        return "\n".join([*self.reading, *self.warnings])


def filtered(counts: RewardCounts) -> bool:
    """Return whether groups of equal rewards may have been left out: there are none, though most groups have equal pairs."""
    many = counts.prompts
    ties = np.add.reduceat(counts.counts.data, counts.counts.indptr[:-1]) > np.diff(counts.counts.indptr)
    return many > 1 and not counts.uniform.any() and int(ties.sum()) * 2 > many


def reward_remarks(counts: RewardCounts, rows: pd.DataFrame) -> Iterator[str]:
    """Yield what the rewards of rows with a group (and an environment) say, a sentence or two each."""
    if filtered(counts):
        yield (
            f"No group of {counts.prompts} has rewards that are all equal. If such groups were left out before logging (dynamic "
            "sampling), all shares and success rates are of what was kept; how many were left out, this log cannot tell."
        )
    ranges = rows.groupby("group")["reward"].agg(["min", "max"])
    spans, far = ranges["max"] - ranges["min"], np.ptp(counts.values) * TINY
    if (spans > 0).sum() > 1 and (np.abs(counts.means) <= TINY * np.abs(counts.values).max()).all():
        yield (
            "In every group the rewards sum to 0, as advantages do. If this column holds advantages, name the one of the rewards "
            "(--reward NAME)."
        )
    near = int(((spans > 0) & (spans <= far)).sum())
    if near and counts.values.size > 2:
        digits = max(0, int(np.floor(-np.log10(far))))
        told = f"In {near} of {counts.prompts} groups rewards differ by {far:.3g} at most, a thousandth of their range, and count"
        yield f"{told} as different. --reward 'round(reward, {digits})' takes them for equal."
    if "environment" in rows:
        ranges = rows.groupby("environment", observed=True)["reward"].agg(["min", "max"])
        wide = ranges[ranges["max"] > ranges["min"]]
        least = (wide["max"] - wide["min"]).min()
        if len(wide) > 1 and max(np.ptp(wide["min"]), np.ptp(wide["max"])) > least / 2:
            found = listed(f"{name} {low:g} to {high:g}" for name, low, high in wide.itertuples())
            yield f"Environments whose rewards have other ranges are read as one: {found}. --where reads one of them."
