"""What a user says of a log, its files that hold rows of responses, and the columns that are read of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from grpo_theory.logs import column_names as names
from grpo_theory.logs.column_names import FILE, RECOGNISED, Fields, found, known, of_pieces, plain, witnesses
from grpo_theory.logs.log_file import LogFile
from grpo_theory.logs.log_folder import BARE, Folder
from grpo_theory.logs.nested_rows import ROW, Field, parts_of, value_at
from grpo_theory.logs.reward_choice import Counted, Reward, Rewards, choose_rewards
from grpo_theory.validation import as_count, shown

UNSCORED = ". Choose unscored='leave' (--unscored leave) to leave rows without a reward out, or 'zero' to count them as 0"
WORDS = (
    ". No row has a number there. Name another column with --reward, such as one that you write beside it, with 1 where the text "
    "means success and 0 elsewhere"
)
INFINITE = (
    ". No option reads these. Correct the rows, or leave their rewards empty and choose unscored='leave' (--unscored leave), "
    "which leaves rows without a reward out"
)
Unscored = Literal["error", "leave", "zero"]


@dataclass(frozen=True)
class Options:
    """What a user says of a log; None where the reader is to find it.

    Attributes
    ----------
    prompt : str or sequence of str, optional
    reward : str, sequence or mapping, optional
    length, response, step, scores, trajectory : str, optional
    group_of : int, optional
        The number of successive rows that are a group.
    where : mapping
        Values of columns, or of what paths say, that rows must have.
    unscored : str
        What becomes of rows without a reward.
    """

    prompt: str | Sequence[str] | None = None
    reward: Reward = None
    length: str | None = None
    response: str | None = None
    step: str | None = None
    scores: str | None = None
    trajectory: str | None = None
    group_of: int | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    unscored: Unscored = "error"

    def check(self) -> None:
        """Raise on values that no log could have."""
        for role in ("length", "response", "step", "scores", "trajectory"):
            name = getattr(self, role)
            if name is not None and not isinstance(name, str):
                raise TypeError(f"{role} must be the name of a column, got an object of type {type(name).__name__}")
        if self.group_of is not None:
            as_count("group_of", self.group_of, 2)
        if self.unscored not in ("error", "leave", "zero"):
            raise ValueError(f"unscored must be 'error', 'leave' or 'zero', got {shown(self.unscored)}")
        if not isinstance(self.where, Mapping):
            raise TypeError(f"where must be a dictionary of values by column, got {shown(self.where)}")

    @property
    def prompts(self) -> tuple[str, ...] | None:
        """The columns given for the prompt."""
        if self.prompt is None:
            return None
        given = (self.prompt,) if isinstance(self.prompt, str) else self.prompt
        if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
            raise TypeError(f"prompt must be the name of a column or several, got {shown(self.prompt)}")
        return tuple(given) or None


@dataclass(frozen=True)
class Columns:
    """The columns of a log by what they mean, as paths; None where it has none.

    Attributes
    ----------
    prompt : tuple of str
        Together they are the prompt's id.
    reward : dict of str to float or str
        The weights of the columns whose sum is the reward; a text is the path of the column with the weight.
    counted : Counted or None
        Where a row is a prompt with numbers of successes.
    length, response, step, trajectory : str, optional
    scores : tuple of str
        One column of lists, or several of numbers; empty if there are none.
    ignored : tuple of str
        The log's other columns.
    """

    prompt: tuple[str, ...]
    reward: dict[str, float | str]
    counted: Counted | None
    length: str | None
    response: str | None
    step: str | None
    trajectory: str | None
    scores: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def needed(self) -> list[str]:
        """All columns that are read."""
        weights = [one for one in self.reward.values() if isinstance(one, str)]
        counted = [] if self.counted is None else [self.counted.successes, self.counted.total]
        one = (*self.prompt, *self.reward, *weights, *counted, self.length, self.response, self.step, self.trajectory)
        return list(dict.fromkeys(name for name in (*one, *self.scores) if isinstance(name, str)))


def open_files(folder: Folder, options: Options) -> list[LogFile]:
    """Return the files that hold rows of responses; leave out those of other kinds, and refuse a log without any."""
    families: dict[str, list[Path]] = {}
    for one in folder.files:
        families.setdefault(folder.kind(one), []).append(one)
    errors: dict[str, ValueError] = {}
    for kind, paths in families.items():
        try:
            _check_readable(LogFile(paths[0], folder.values(paths[0])), options)
        except ValueError as error:
            errors[kind] = error
    if len(errors) == len(families):
        largest = max(errors, key=lambda kind: sum(one.stat().st_size for one in families[kind]))
        raise errors[largest]
    endings = {one.suffix for kind, paths in families.items() if kind not in errors for one in paths}
    for kind, why in errors.items():
        broken = " is no whole " in str(why) or str(why).endswith(" is empty")
        if broken and {one.suffix for one in families[kind]} <= endings:
            raise why
        folder.drop("no rows with a prompt and a reward", families[kind])
    return [LogFile(one, {**folder.values(one), FILE: str(k + 1)}) for k, one in enumerate(folder.files)]


def _check_readable(file: LogFile, options: Options) -> None:
    rewards = choose_rewards(file.row_fields, options.reward)
    prompts = options.prompts or witnesses(within(file.fields, rewards), holds_several(file, rewards)).prompts
    if not prompts and options.group_of is None:
        raise ValueError(_no_prompt(within(file.row_fields, rewards)))


def within(fields: Fields, rewards: Rewards) -> dict[str, Field]:
    """Return the fields that a response has: those that go through no list of objects that the reward does not."""
    return {path: one for path, one in fields.items() if one.lists == rewards.lists[: len(one.lists)]}


def holds_several(file: LogFile, rewards: Rewards) -> bool:
    """Return whether a row may hold several responses."""
    listed_ = rewards.first in file.fields and file.fields[rewards.first].kind == "list"
    if rewards.counted is None and (rewards.lists or listed_) and len(file.sample) == 1:  # one list need not be one group
        value = value_at(file.sample[0], parts_of(rewards.first, file.kinds))
        return isinstance(value, list) and any(isinstance(one, list) for one in value)
    return bool(rewards.lists) or rewards.counted is not None or file.document or listed_


def _no_prompt(fields: Fields) -> str:
    return (
        f"prompt must name the column of the prompts' ids or texts; {found(fields, RECOGNISED['prompt'])}. Where each N rows one "
        "after another are a group, group_of=N (--group-of N) reads them without"
    )


def choose_columns(options: Options, files: list[LogFile], fields: Fields, rewards: Rewards) -> Columns:
    """Return the columns given by name, or recognised where None is given; an empty name is for none."""
    given = options.prompts
    if given is None:
        first = next(iter(witnesses(fields, holds_several(files[0], rewards)).prompts), None)
        if first is None and options.group_of is None:
            raise ValueError(_no_prompt(fields))
        prompt: tuple[str, ...] = (FILE,) if first is None else (FILE, ROW) if first == ROW and len(files) > 1 else (first,)
    else:
        for one in given:
            column("prompt", files[0].fields, one)
        if "" in given:
            raise ValueError(_no_prompt(fields))
        prompt = given
    for key in options.where:
        if key != "path" and not known(key, files[0].fields):
            raise ValueError(f"where must name columns of the log, got {shown(key)}; {found(files[0].fields, [key])}")
    alike = len({file.path.suffix for file in files}) == 1  # or the numbers in their names need not be steps
    no_steps = {FILE} if alike else {FILE, BARE}
    constants = [{name: value for name, value in file.constants.items() if name not in no_steps} for file in files]
    others = {role: column(role, fields, getattr(options, role)) for role in ("length", "response")}
    step = choose_step(fields, constants, options.step)
    scores = choose_scores(fields, options.scores)
    trajectory = column("trajectory", fields, options.trajectory) if options.trajectory else None
    return Columns(
        prompt, rewards.weights, rewards.counted, **others, step=step, trajectory=trajectory, scores=scores, ignored=()
    )


def column(role: str, fields: Fields, name: str | None) -> str | None:
    """Return the column given or recognised by an exact name, if there is one."""
    if name is None:
        return next(iter(names.exact(role, fields)), None)
    if name and not known(name, fields):
        raise ValueError(f"{role} must be a column of the log, got {shown(name)}; {found(fields, [name])}")
    return name or None


def without_ignored(columns: Columns, file: LogFile) -> Columns:
    """Return the columns with those of the file that are not read."""
    heads = {one for path in columns.needed for one in file.kinds if path == one or path.startswith(f"{one}.")}
    return replace(columns, ignored=tuple(name for name in file.kinds if name not in heads))


def choose_scores(fields: Fields, name: str | None) -> tuple[str, ...]:
    """Return the column of that name, or the columns with that name and a number behind it, in the order of the numbers."""
    if name is None:
        listed_ = next((one for one in names.exact("scores", fields) if fields[one].kind == "list"), None)
        return (listed_,) if listed_ else ()
    if not name or name in fields:
        return (name,) if name else ()
    numbered = {
        int(one[len(name) :]): one
        for one in fields
        if one.startswith(name) and one[len(name) :].isdigit() and str(int(one[len(name) :])) == one[len(name) :]
    }
    if not numbered:
        raise ValueError(
            "scores must be a column of lists, or what stands before the numbers of columns; "
            f"got {shown(name)}; {found(fields, [name])}"
        )
    return tuple(numbered[k] for k in sorted(numbered))


def choose_step(fields: Fields, constants: Iterable[Mapping[str, str]], name: str | None) -> str | None:
    """Return the column of the step: given, of the rows, or of the files' paths."""
    if name is not None:
        return column("step", fields, name)
    paths = list(constants)
    kinds = ("number", "text", "list", "texts")
    of_rows = {path: one for path, one in fields.items() if not (paths and path in paths[0]) and one.kind in kinds}
    top = names.exact("step", of_rows)
    if top:
        return top[0]
    worded = [
        path for path in names.named_like(names.STEPS, names.OF_STEPS, of_rows) if not of_rows[path].lists and "." not in path
    ]
    if worded:
        return worded[0]
    for word in names.PATH_STEPS:
        values = [one.get(word) for one in paths]
        several = word not in (BARE, "v", "version", "epoch") or len(set(values)) > 1
        if values and None not in values and several and word in fields:
            return word
    deep = [path for path in of_rows if plain(path.rsplit(".", 1)[-1]) in RECOGNISED["step"]]
    deep = [path for path in deep if not of_pieces(of_rows[path])]
    return min(deep, key=lambda path: (len(of_rows[path].lists), path.count("."))) if deep else None
