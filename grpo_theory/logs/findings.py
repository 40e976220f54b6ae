"""What a reader found in a log of rollouts, and what the rows of the log say against it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.logs.reward_counts import TINY, centred, filtered, nearly_equal
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import Integers

FEW = 8
"""Up to this number, different values or sizes are listed one by one."""


@dataclass(frozen=True)
class Findings:
    """What a log of rollouts contains and what was left out of it; print it for a summary.

    Attributes
    ----------
    files, rows : int
        The numbers of files and of rows that were read, including rows of repeated steps and of steps not asked for.
    kept : int
        The number of rows that stayed.
    columns : mapping of str to str
        The columns that were taken, by what they mean.
    ignored : tuple of str
        The columns that were not read.
    prompts, groups : int
        The numbers of different prompts, and of groups of responses, one per prompt and step.
    sizes : mapping of int to int
        How many groups there are of each size, ascending.
    rewards : mapping of float to int
        How often each reward came, ascending.
    uniform : int
        The number of groups whose rewards are all equal.
    steps : tuple of int
        The steps of the rows that stayed, ascending; empty if the log has none.
    other_steps : int
        The number of steps that were not asked for.
    repeated_steps : tuple of int
        Steps that were left out because their rows repeat those of the step before, one for one.
    older_groups : int
        The number of groups of steps that were asked for, left out because their prompt has a newer one.
    duplicates : int
        The number of rows that repeat the prompt, response and reward of a row of their step; all of them stayed.
    left_out : mapping of str to int
        The number of rows that are not used, or not as they are, by the reason.
    files_left_out : mapping of str to tuple of str
        Files of the folder that were not read, by the reason.
    remarks : tuple of str
        Sentences on what was read otherwise than it seems, and on what the rows say against the log.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     findings = gt.read_rollouts(path).findings
    >>> print(findings)
    12 rows in 1 file
    columns: prompt = prompt_id, reward = reward
    3 prompts, 3 groups of responses
    group sizes: 3 of 4
    rewards: 0 (6), 1 (6); 0 of 3 groups have rewards that are all equal
    """

    files: int
    rows: int
    kept: int
    columns: Mapping[str, str]
    ignored: tuple[str, ...]
    prompts: int
    groups: int
    sizes: Mapping[int, int]
    rewards: Mapping[float, int]
    uniform: int
    steps: tuple[int, ...]
    other_steps: int
    repeated_steps: tuple[int, ...]
    older_groups: int
    duplicates: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    files_left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def ragged(self) -> bool:
        """Whether groups differ in size."""
        return len(self.sizes) > 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with the log, or with what is said from it; one sentence each."""
        sentences = []
        if len(self.rewards) == 1:
            sentences.append(
                f"All rewards are equal ({next(iter(self.rewards)):g}): they tell nothing about groups or gradients."
            )
        if self.older_groups:
            sentences.append(
                f"{_counted(self.older_groups, 'group')} left out: their prompts have newer ones, and groups of one prompt are "
                "not independent. Each prompt's newest group is used."
            )
        if self.groups > self.prompts:
            sentences.append(
                f"The {self.groups} groups are of {_counted(self.prompts, 'prompt')}, and intervals take them for independent: "
                "they come out too narrow (steps='newest' uses each prompt's newest group)."
            )
        if len(self.steps) > 1:
            sentences.append(
                f"The groups are of {len(self.steps)} steps, between which the policy changed. Different prompts may be of "
                "different policies, and what is said is about their average (steps='last' takes the last step alone)."
            )
        if self.repeated_steps:
            sentences.append(
                f"{_counted(len(self.repeated_steps), 'step')} ({_listed(self.repeated_steps)}) repeated the rows of the step "
                "before, as a trainer's log does that takes several updates from one batch: left out."
            )
        if self.duplicates:
            repeat = "repeats" if self.duplicates == 1 else "repeat"
            sentences.append(
                f"{_counted(self.duplicates, 'row')} of {self.kept} {repeat} another row's prompt, response and reward. Short "
                "answers do so by chance; if rows were written twice, intervals are too narrow."
            )
        small = sum(count for size, count in self.sizes.items() if size < 4)
        if small:
            have = "has" if small == 1 else "have"
            sentences.append(
                f"{_counted(small, 'group')} of {self.groups} {have} fewer than four responses, too few for c1, c2 and c3."
            )
        return tuple(sentences)

    def __str__(self) -> str:
        return "\n".join([*self.reading, *self.warnings])

    @property
    def reading(self) -> tuple[str, ...]:
        """How the columns were read, and how much there is of everything; one line each."""
        taken = ", ".join(f"{role} = {printable(name)}" for role, name in self.columns.items())
        sizes = ", ".join(f"{count} of {size}" for size, count in self.sizes.items())
        if len(self.sizes) > FEW:
            sizes = f"{self.groups} of {min(self.sizes)} to {max(self.sizes)}"
        rewards = ", ".join(f"{value:g} ({count})" for value, count in self.rewards.items())
        if len(self.rewards) > FEW:
            rewards = f"{len(self.rewards)} values from {min(self.rewards):g} to {max(self.rewards):g}"
        left = [f"{_counted(many, 'row')} {why}" for why, many in self.left_out.items() if many]
        other = [f"{_listed_names(names)} ({why})" for why, names in self.files_left_out.items()]
        lines = [
            f"{_counted(self.rows, 'row')} in {_counted(self.files, 'file')}"
            + (f", of which {self.kept} are used" if self.kept < self.rows and "trajectory" not in self.columns else "")
            + (
                f", which hold {self.kept} responses that are used"
                if self.kept > self.rows or "trajectory" in self.columns
                else ""
            )
            + (f"; of the rows: {', '.join(left)}" if left else "")
            + (f"; files left out: {', '.join(other)}" if other else ""),
            f"columns: {taken}" + (f"; not read: {listed(map(_name, self.ignored))}" if self.ignored else ""),
            f"{_counted(self.prompts, 'prompt')}, {_counted(self.groups, 'group')} of responses"
            + (f" at {_counted(len(self.steps), 'step')} ({_listed(self.steps)})" if self.steps else "")
            + (f"; {_counted(self.other_steps, 'other step')} not asked for" if self.other_steps else ""),
            f"group sizes: {sizes}",
            f"rewards: {rewards}; {self.uniform} of {self.groups} groups have rewards that are all equal",
        ]
        return (*lines, *self.remarks)


def check_sizes(findings: Findings) -> None:
    """Raise ValueError if every group of a log has one response."""
    if max(findings.sizes) == 1:
        which = f"each of the {findings.groups} groups" if findings.groups > 1 else "the only group"
        at = " at its step" if findings.steps else ""
        other = f" (not read: {listed(map(_name, findings.ignored))})" if findings.ignored else ""
        prompt = printable(findings.columns["prompt"])
        raise ValueError(
            f"prompt ({prompt}) must be shared by the responses to a prompt, and {which} has one response{at}. "
            f"One response says nothing about groups. Name the column that they share with prompt=COLUMN (--prompt COLUMN){other}"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed_names(names: tuple[str, ...]) -> str:
    return listed(names) if len(names) <= FEW else f"{printable(names[0])} and {len(names) - 1} more"


def _name(column: str) -> str:
    return column if column and column == column.strip() else repr(column)


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) if len(values) <= FEW else f"{values[0]} to {values[-1]}"


def reward_remarks(counts: RewardCounts) -> list[str]:
    """Return what the rewards say: a sentence each."""
    remarks = []
    expected = filtered(counts)
    if expected:
        remarks.append(
            f"No group has rewards that are all equal, and about {expected:.0f} or more of {counts.prompts} were to be expected. "
            "Groups of equal rewards were left out before logging (dynamic sampling). What is said is about the groups that were "
            "kept; how many had equal rewards, this log cannot tell."
        )
    if centred(counts):
        remarks.append(
            "In every group the rewards sum to 0, as advantages do. If this column holds advantages, name the one of the rewards "
            "(--reward NAME)."
        )
    near = nearly_equal(counts) if counts.values.size > 2 else 0
    if near:
        uniform = int(counts.uniform.sum())
        tolerance = TINY * float(counts.values[-1] - counts.values[0])
        remarks.append(
            f"In {near} of {counts.prompts} groups rewards differ by {tolerance:.3g} at most, a thousandth of their range. They "
            f"count as different. reward_tolerance={tolerance:.3g} (--reward-tolerance {tolerance:.3g}) takes them for equal: "
            f"{near + uniform} and not {uniform} groups then have rewards that are all equal."
        )
    return remarks


def order_remark(runs: Mapping[int, int], sizes: Integers, group_of: int | None) -> str | None:
    """Return what the order of the rows says: several blocks of a prompt's rows may be several groups.

    Parameters
    ----------
    runs : mapping of int to int
        How often so many rows of a group come one after another.
    sizes : ndarray, shape (B,)
        Of all groups.
    group_of : int, optional
        The size that was asked for.
    """
    several = sum(runs.values())
    if group_of is not None or several <= sizes.size:
        return None
    usual = max(runs, key=lambda size: runs[size])
    if usual < 2 or runs[usual] < 0.9 * several or (sizes % usual).any():
        return None
    many = int((sizes > usual).sum())
    return (
        f"The rows of {many} of {sizes.size} groups come in several blocks of {usual} rows. Each block may be a group of its own "
        f"(group_of={usual}, --group-of {usual}, reads them so)."
    )


def size_remark(sizes: Mapping[int, int], group_of: int | None) -> str | None:
    """Return that some groups have twice the usual size, or more, of which each may be several groups."""
    usual = max(sizes, key=lambda size: sizes[size])
    larger = {size: count for size, count in sizes.items() if size > usual and size % usual == 0}
    if group_of is not None or usual < 2 or not larger or sizes[usual] < 2 * sum(larger.values()):
        return None
    found = ", ".join(f"{count} of {size}" for size, count in larger.items())
    return (
        f"Most groups have {usual} responses, and some a multiple of that ({found}). A prompt that came twice at a step looks so "
        f"(group_of={usual}, --group-of {usual}, reads {usual} rows one after another as a group)."
    )
