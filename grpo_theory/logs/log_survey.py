"""How the rows of a log are read: what ids, texts, groups and advantages of the first rows say of one another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from grpo_theory.logs import column_names as names
from grpo_theory.logs.column_names import FILE, Witnesses, is_evaluation
from grpo_theory.logs.column_values import ids, numbers
from grpo_theory.logs.log_opening import Columns
from grpo_theory.logs.nested_rows import ROW
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Flags, Integers, counted

SURVEYED = 2**16
"""The number of rows that are looked at."""


NEAR = 1e-3
"""Advantages that differ by less than this share of the largest are taken for equal: logs are rounded."""


@dataclass(eq=False)
class Survey:
    """The first rows: codes (n,) of each column's values, and the rewards.

    Attributes
    ----------
    codes : dict of str to ndarray
    texts : dict of str to list
        What the codes stand for.
    rewards, advantages : ndarray, shape (n,), or None
    """

    codes: dict[str, Integers]
    texts: dict[str, list[str]]
    rewards: Array
    advantages: Array | None
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        tables: Iterator[pa.Table],
        columns: Sequence[str],
        advantage: str | None,
        rewards: Callable[[pa.Table], Array],
    ) -> "Survey":
        """Look at tables until there are enough rows."""
        import pandas as pd  # slow to import, and not always wanted

        seen: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        found: list[Array] = []
        logged: list[Array] = []
        for table in tables:
            for name in columns:
                encoded = ids(table[name], name)
                values = np.array([_text(one) for one in encoded.dictionary.to_pylist()] + [""], dtype=object)
                place = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
                seen[name].append(values[place])
            found.append(rewards(table))
            if advantage is not None:
                logged.append(numbers(table[advantage], advantage))
            if sum(map(len, found)) >= SURVEYED:
                break
        factors = {name: pd.factorize(np.concatenate(parts)) for name, parts in seen.items() if parts}
        codes = {name: np.asarray(code, dtype=np.int64) for name, (code, _) in factors.items()}
        texts = {name: list(values) for name, (_, values) in factors.items()}
        return cls(codes, texts, np.concatenate(found), np.concatenate(logged) if logged else None)

    def keep(self, rows: Flags) -> "Survey":
        """Return the survey of some of its rows."""
        codes = {name: one[rows] for name, one in self.codes.items()}
        return Survey(codes, self.texts, self.rewards[rows], None if self.advantages is None else self.advantages[rows])

    def joint(self, *columns: str | None) -> Integers:
        """Return codes of the rows by several columns together, from 0."""
        joint = np.zeros(self.rewards.size, dtype=np.int64)
        for name in columns:
            if name is not None:
                joint = np.unique(joint * (int(self.codes[name].max()) + 1) + self.codes[name], return_inverse=True)[1]
        return joint

    def count(self, *columns: str | None) -> int:
        """Return how many different values columns have together."""
        return int(np.unique(self.joint(*columns)).size)

    def given(self, column: str) -> bool:
        """Return whether a column has a value in every row."""
        return "" not in self.texts[column]

    def refines(self, step: str | None, first: str, second: str) -> bool:
        """Return whether at a step one value of `first` has several of `second`."""
        return self.count(step, first, second) > self.count(step, first)


def _text(value: object) -> str:
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)


@dataclass(frozen=True)
class SurveyReading:
    """How the rows of a log are read.

    Attributes
    ----------
    columns : Columns
    split : str or None
        The column by whose value rows of evaluation are left out.
    group_of : int or None
        The number of successive rows of a prompt that are a group.
    remarks : tuple of str
        Sentences on what was read otherwise than it seems.
    """

    columns: Columns
    split: str | None = None
    group_of: int | None = None
    remarks: tuple[str, ...] = ()


def judge(survey: Survey, columns: Columns, seen: Witnesses, named: bool) -> SurveyReading:
    """Return how the rows are read; `named` where the user said which column is the prompt's."""
    split, survey = _split(survey, seen)
    reading = SurveyReading(columns, split)
    if not survey.rewards.size:
        return reading
    if not named and seen.prompts[:1] != (ROW,):
        columns = _prompt(survey, columns, seen)
    own = columns.response
    if own in seen.groups and survey.count(columns.step, *columns.prompt, own) < survey.rewards.size:
        survey.remarks.append(f"{own} is shared by several rows: it is a group's id, and no response's.")
        columns = replace(columns, response=next((one for one in seen.responses if one not in seen.groups), None))
    columns = _trajectory(survey, _without_turns(survey, columns, seen), seen)
    group_of = None if columns.trajectory is not None else _blocks(survey, columns, named)
    remarks = tuple(survey.remarks)
    return SurveyReading(columns, split, group_of, remarks)


def _split(survey: Survey, seen: Witnesses) -> tuple[str | None, Survey]:
    """Return the column that tells training from evaluation, if any does, and the survey of the rows of training."""
    for name in seen.splits:
        evaluation = np.array([is_evaluation(name, one) for one in survey.texts[name]])
        if not evaluation.all():
            return name, survey.keep(~evaluation[survey.codes[name]]) if evaluation.any() else survey
    return None, survey


def _prompt(survey: Survey, columns: Columns, seen: Witnesses) -> Columns:
    """Return the columns with those that tell prompts apart, and say where they are others than the name promises."""
    step = columns.step
    rows = survey.rewards.size
    usable = [one for one in seen.prompts if one in survey.codes and survey.given(one)]
    shared = [one for one in usable if survey.count(step, one) < rows and survey.count(one) > 1]
    if not shared:
        shared = [one for one in usable if survey.count(step, one) < rows]
    if not shared:
        return columns
    prompt = shared[0]
    ids = [one for one in usable if one not in (*seen.texts, *seen.groups, columns.prompt[0]) and names.is_prompt_id(one)]
    unshared = [one for one in ids if survey.count(one) == rows]
    if unshared:
        survey.remarks.append(
            f"{printable(unshared[0])} is another in each row, so it is no id of prompts: {printable(prompt)} is taken."
        )
    if prompt != columns.prompt[0]:
        survey.remarks.append(
            f"{printable(columns.prompt[0])} does not tell prompts apart (it is another in each row, or the same in all). "
            f"So {printable(prompt)} is taken for the prompt (--prompt names another column)."
        )
    text = next((one for one in seen.texts if one in survey.codes and one != prompt and survey.given(one)), None)
    if text is not None and prompt not in seen.texts and survey.refines(None, prompt, text):
        at_once = survey.refines(step, prompt, text)
        survey.remarks.append(
            f"{printable(prompt)} stands for different prompts"
            + (" of one step" if at_once else " at different steps: it begins anew")
            + f". Prompts are told apart by {printable(text)} (--prompt {printable(prompt)} takes the other)."
        )
        prompt = text
    elif text is None and prompt not in seen.texts:
        return _anew(survey, columns, prompt)
    group = next((one for one in seen.groups if one in survey.codes and one != prompt and survey.given(one)), None)
    if group is not None and survey.refines(step, prompt, group) and survey.count(step, prompt, group) < rows:
        survey.remarks.append(f"At a step a {printable(prompt)} has several groups, by {printable(group)}: they are kept apart.")
        return replace(columns, prompt=(prompt, group))
    return replace(columns, prompt=(prompt,))


def _anew(survey: Survey, columns: Columns, prompt: str) -> Columns:
    """Return the columns, with the step in the prompt's id where the id is a place that begins anew at each step."""
    step = columns.step or (FILE if FILE in survey.codes else None)
    if step is None or survey.count(step) < 2 or not _begins_anew(survey, step, prompt):
        return replace(columns, prompt=(prompt,))
    where = f"in each {printable(step)}"
    if names.is_position(prompt):
        survey.remarks.append(
            f"{printable(prompt)} begins anew {where}, and no text says that prompts are the same. They are taken for different "
            f"ones (--prompt {printable(prompt)} takes equal numbers for the same prompt)."
        )
        return replace(columns, prompt=(step, prompt), step=step)
    survey.remarks.append(
        f"{printable(prompt)} takes the same numbers from the first on {where}. It is taken for the prompt's id; if it begins "
        f"anew, say --prompt {printable(step)} --prompt {printable(prompt)}."
    )
    return replace(columns, prompt=(prompt,))


def _begins_anew(survey: Survey, step: str, prompt: str) -> bool:
    """Return whether at every step the ids are 0 to n - 1, or 1 to n."""
    texts = survey.texts[prompt]
    if not all(one.isdigit() for one in texts):
        return False
    values = np.array([int(one) for one in texts])[survey.codes[prompt]]
    for one in np.unique(survey.codes[step])[:-1] if survey.rewards.size >= SURVEYED else np.unique(survey.codes[step]):
        own = np.unique(values[survey.codes[step] == one])
        if own[0] not in (0, 1) or own[-1] - own[0] != own.size - 1:
            return False
    return True


def _without_turns(survey: Survey, columns: Columns, seen: Witnesses) -> Columns:
    """Return the columns without the step, if it numbers the turns of trajectories of different lengths."""
    step = columns.step
    if step is None or step not in survey.codes:
        return columns
    places = set(survey.texts[step])
    for name in seen.trajectories:
        if name not in survey.codes or name in columns.prompt or not survey.given(name):
            continue
        lengths = np.bincount(survey.joint(*columns.prompt, name))
        once = survey.count(*columns.prompt, name, step) == survey.rewards.size
        if once and len(places) == lengths.max() > lengths.min() and {"0", "1"} & places:
            survey.remarks.append(
                f"{printable(step)} counts the rows of each {printable(name)}: it is taken for a turn, and not for a step."
            )
            return replace(columns, step=None)
    return columns


def _trajectory(survey: Survey, columns: Columns, seen: Witnesses) -> Columns:
    """Return the columns, with a trajectory if several rows are of one."""
    if columns.trajectory is not None:
        return columns
    rows, group = survey.rewards.size, (columns.step, *columns.prompt)
    for name in seen.trajectories:
        if name not in survey.codes or name in columns.prompt or not survey.given(name):
            continue
        many = survey.count(*group, name)
        if survey.count(*group) < many < rows:
            same = _one_reward(survey, survey.joint(*group, name))
            if same or seen.turns or any("turn" in one for one in survey.remarks):
                survey.remarks.append(
                    f"Several rows are of one {printable(name)}: they are the turns of a response, and one response together"
                    + ("." if same else ", whose reward is the sum of theirs (they differ).")
                    + " --trajectory '' reads each row as a response."
                )
                return replace(columns, trajectory=name)
    return columns


def _blocks(survey: Survey, columns: Columns, named: bool) -> int | None:
    """Return how many rows one after another are a group, if the advantages say that the prompts' groups are several."""
    advantages = survey.advantages
    if advantages is None:
        return None
    told = np.isfinite(advantages)
    if not told.any() or np.ptp(advantages[told]) == 0.0:
        return None
    groups = survey.joint(columns.step, *columns.prompt)
    sizes = np.bincount(groups)
    wrong = contradicted(groups[told], survey.rewards[told], advantages[told])
    if not wrong:
        return None
    without = "" if told.all() else f" {counted(int((~told).sum()), 'row')} without an advantage {_do(~told)} not count here."
    order = np.argsort(groups, kind="stable")
    for size in range(int(sizes.max()) // 2, 1, -1):
        if (sizes % size).any():
            continue
        blocks = np.empty_like(groups)
        blocks[order] = np.arange(groups.size) // size
        if contradicted(blocks[told], survey.rewards[told], advantages[told]) or not _centred(blocks, advantages):
            continue
        if named:
            survey.remarks.append(
                f"The logged advantages contradict {wrong} groups, and agree with groups of {size} rows one after another: "
                f"--group-of {size} reads them so.{without}"
            )
            return None
        survey.remarks.append(
            f"The advantages contradict {wrong} groups by {printable(columns.prompt[0])} (equal rewards, unequal advantages), "
            f"and agree with groups of {size} rows one after another. They are read so (--group-of names another size).{without}"
        )
        return size
    survey.remarks.append(
        f"The logged advantages contradict {wrong} of {sizes.size} groups: equal rewards have unequal advantages there. Rows of "
        "a prompt may be several groups (--group-of N reads N rows one after another as a group). The trainer's reward may be "
        "another column or a sum of several (--reward names it, and may be given several times). Or advantages depend on more "
        f"than the group's rewards.{without}"
    )
    return None


def _one_reward(survey: Survey, codes: Integers) -> bool:
    """Return whether rows of one code have one reward."""
    order = np.lexsort((survey.rewards, codes))
    same = codes[order][1:] == codes[order][:-1]
    return bool((survey.rewards[order][1:] == survey.rewards[order][:-1])[same].all())


def contradicted(groups: Integers, rewards: Array, advantages: Array) -> int:
    """Return in how many groups equal rewards have unequal advantages."""
    order = np.lexsort((advantages, rewards, groups))
    same = (groups[order][1:] == groups[order][:-1]) & (rewards[order][1:] == rewards[order][:-1])
    apart = np.abs(np.diff(advantages[order])) > NEAR * np.abs(advantages).max()
    return int(np.unique(groups[order][1:][same & apart]).size)


def _centred(groups: Integers, advantages: Array) -> bool:
    """Return whether the advantages of each group sum to 0, as those less a group's mean do; groups with gaps do not count."""
    sums = np.bincount(groups, weights=advantages)
    whole = np.isfinite(sums)
    largest = float(np.nanmax(np.abs(advantages)))
    return bool(whole.any() and np.abs(sums[whole]).max() <= 10.0 * NEAR * largest * np.bincount(groups).max() ** 0.5)


def _do(rows: Flags) -> str:
    return "does" if rows.sum() == 1 else "do"
