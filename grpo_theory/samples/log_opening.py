"""The files of a log that hold rows of responses, and the columns that are read of them."""

from dataclasses import replace
from pathlib import Path

from grpo_theory.samples.column_choice import (
    Columns,
    Rewards,
    choose_rewards,
    choose_scores,
    choose_step,
    column,
    found,
    known,
    within,
)
from grpo_theory.samples.column_names import RECOGNISED, Fields
from grpo_theory.samples.log_fields import ROW, parts_of, value_at
from grpo_theory.samples.log_file import LogFile
from grpo_theory.samples.log_folder import BARE, Folder
from grpo_theory.samples.log_options import Options
from grpo_theory.samples.log_survey import FILE, witnesses
from grpo_theory.validation import shown


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


def without_ignored(columns: Columns, file: LogFile) -> Columns:
    """Return the columns with those of the file that are not read."""
    heads = {one for path in columns.needed for one in file.kinds if path == one or path.startswith(f"{one}.")}
    return replace(columns, ignored=tuple(name for name in file.kinds if name not in heads))
