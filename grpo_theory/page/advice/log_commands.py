"""`grpo-theory plan`, `check` and `read`: a group size from a log, what it tells of its trainer, and what to do.

Here are also the options of commands that read a log, and what those that say which rows and rewards are read stand for.

What is slow to import is imported after the command line is understood.
"""

import argparse
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple
from uuid import uuid4

OPTIONS = Path(__file__).with_name("options.toml")
TYPES = {"int": int, "float": float, "Path": Path}
RENAMED = {"clip[0]": "--clip-low", "clip[1]": "--clip-high", "cap": "--cap"}
OWN = ("right", "against", "by", "difference")
"""Options of `read` that are arguments of `gt.checks.read_log`."""
STEP = 1024
"""The responses of a step, in pairs, if only those of the run are given."""
LIMITS = ("budget", "cost_prompt", "cost_response", "max_group_size", "max_responses", "min_prompts", "multiple_of")
"""The options of `plan` that say what one batch may cost and must fit."""
CAN_BE_WRITTEN = "must be a file in a folder that exists and can be written"
STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
OPEN = ("/dev/", "/proc/")
"""Where devices and what is open already have names: text is added to them, and they are never replaced."""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Describe a command by what ``options.toml`` says of it: its purpose, its options, and those of rows.

    The messages of `gt.read_rollouts` recommend the options of rows.
    """
    read = tomllib.loads(OPTIONS.read_text(encoding="utf-8"))
    own = read[command]
    parser.description = own["description"]
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    groups |= {title: parser.add_argument_group(title, words or None) for title, words in own["groups"].items()}
    for listed in own["option"]:
        group = groups[listed.pop("group", "")]
        for option in [listed] if listed["names"] else read["rows"]:
            kind: dict[str, Any] = {"type": TYPES[option.pop("type")]} if "type" in option else {}
            group.add_argument(*option.pop("names"), **kind, **option)


def chosen_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return what these options say as arguments of `gt.read_rollouts`; those that are not given are left out."""
    listed = tomllib.loads(OPTIONS.read_text(encoding="utf-8"))["rows"]
    names = [one["names"][0].removeprefix("--").replace("-", "_") for one in listed]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if "where" in given:
        given["where"] = " and ".join(f"({one})" for one in given["where"])
    if "steps" in given:
        low, dash, high = given["steps"].partition("-")
        with suppress(ValueError):  # a word, or what the reader refuses
            given["steps"] = (float(low), float(high)) if dash else float(low)
    return given


class Command(NamedTuple):
    """A subcommand: its line in the help, its name in ``options.toml``, and what makes its texts."""

    HELP: str
    name: str
    texts: Callable[[argparse.Namespace], Mapping[str, Callable[[], str]]]

    def describe(self, parser: argparse.ArgumentParser) -> None:
        """Describe the subcommand and its options."""
        add_options(parser, self.name)

    def run(self, options: argparse.Namespace) -> int:
        """Write the files that were asked for, and print the text or JSON; returns the exit status."""
        read = [*log_files(options.table), *log_files(getattr(options, "against", None) or "")]
        asked = targets({kind: getattr(options, kind, None) for kind in ("json", "html", "prompts")}, options.table, read)
        try:
            texts = self.texts(options)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
        write({target: texts[kind]() for kind, target in asked.items()})
        with named("standard output"):
            print(texts["json" if options.json in STANDARD_OUTPUT else "text"](), end="", flush=True)
        return 0


def targets(outputs: Mapping[str, str | None], table: str, read: Sequence[Path]) -> dict[str, Path]:
    """Return where outputs go, by their kind; raise ValueError if one cannot be written or would change what is read.

    Parameters
    ----------
    outputs : mapping
        What was given for --json and --html.
    table : str
        The file or folder.
    read : sequence of Path
        The files that will be read.
    """
    chosen: dict[str, Path] = {}
    for kind, given in outputs.items():
        if given in STANDARD_OUTPUT and kind != "json":
            raise ValueError(f"--{kind} must be a file, got {given}; only --json can be printed")
        if given is None or given in STANDARD_OUTPUT:
            continue
        try:
            path = Path(given) if given.startswith(OPEN) else Path(given).resolve()
            folder = Path(table).resolve()
            same = [file for file in read if path.exists() and file.exists() and path.samefile(file)]
            if path == folder or same[:1] == [Path(table)]:
                raise ValueError(f"--{kind} must not be the table itself, got {given}")
            if same:
                raise ValueError(f"--{kind} must not be {same[0]}, which is read as part of the table, got {given}")
            if folder.is_dir() and folder in path.parents:
                raise ValueError(f"--{kind} must be outside the table's folder, whose files are the table, got {given}")
            there = path if path.exists() or given.startswith(OPEN) else path.parent
            if path.is_dir() or path.is_block_device() or not path.parent.is_dir() or not os.access(there, os.W_OK):
                raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}")
        except OSError as error:
            raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}: {error.strerror}") from None
        if path in chosen.values():
            raise ValueError(f"--json and --html must be different files, got {given} for both")
        chosen[kind] = path
    with suppress(OSError):  # of a standard output that is closed
        if any(file.exists() and os.path.samestat(os.fstat(1), file.stat()) for file in read):
            raise ValueError("standard output must not be the table itself, got it by > or >>")
    return chosen


def log_files(table: str) -> list[Path]:
    """Return the files that a log may be read from: itself, or all in the folder."""
    path = Path(table)
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file()) if table else []


def write(texts: Mapping[Path, str]) -> None:
    """Write texts: a file under another name first, which gets its own when it is whole; an error names what was asked for."""
    for path, text in texts.items():
        with named(path):
            if str(path).startswith(OPEN) or path.is_fifo() or path.is_char_device():
                opened = int(path.name) if path.parent == Path("/dev/fd") else path  # by its number, others go on after the text
                with open(opened, "a", encoding="utf-8", closefd=opened == path) as stream:
                    stream.write(text)
                continue
            part = path.with_name(f".{uuid4().hex}")
            try:
                part.write_text(text, encoding="utf-8")
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


@contextmanager
def named(what: object) -> Iterator[None]:
    """Name a file in the OSError that an attempt to write it raises; that nobody reads any more is no error of it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(what)) from None


def _plan(options: argparse.Namespace) -> Mapping[str, Callable[[], str]]:
    from grpo_theory import page  # what it offers needs numpy, and the curve matplotlib
    from grpo_theory.logs import read_rollouts
    from grpo_theory.page.advice.screen import option
    from grpo_theory.plan import Limits, advise, advise_run
    from grpo_theory.plan.advice import check_total
    from grpo_theory.validation import ArgumentError

    log, whole = None, None
    try:
        limiting = {name: given for name in LIMITS if (given := getattr(options, name)) is not None}
        # ValueErrors where neither what a step may cost nor the run's responses are given, and where they contradict.
        if options.total is None and options.training_prompts is not None:
            raise ValueError("--training-prompts is of the whole run: give its responses too (--total)")
        if options.total is None and options.budget is None:
            raise ValueError("give what one batch may cost (--budget), or the responses of the whole run (--total), or both")
        costs = options.cost_prompt, options.cost_response
        total = None if options.total is None else check_total(options.total, costs)
        if total is not None and options.budget is None:
            limiting["budget"] = min(STEP * (0.5 * costs[0] + costs[1]), total)
        elif total is not None and options.budget > total:
            what = (
                "Here --total counts the responses of the whole run, or what they cost, and --budget is what one batch may cost"
            )
            raise ValueError(f"--total {total:,.0f} is less than one batch of --budget {options.budget:,.0f}. {what}")
        log = read_rollouts(options.table, **chosen_rows(options))
        used = {"group_size": options.group_size, "estimator": options.estimator}
        advice = advise(log, Limits(**limiting), **used, level=options.level, tolerance=options.tolerance)
        if options.total is not None:
            run = {"training_prompts": options.training_prompts, "costs": costs, "largest": options.max_group_size or STEP}
            whole = advise_run(log, options.total, **used, **run)
    except ArgumentError as error:
        raise ValueError(error.renamed({name: option(name) for name in vars(options)})) from None
    except ValueError as error:
        if log is None:
            raise
        raise ValueError(f"{error}. What was read: {'; '.join(log.findings.reading[1:3])}") from None
    files = {"json": lambda: page.to_json(advice, whole), "html": lambda: page.to_html(advice, whole)}
    return files | {"text": lambda: page.to_text(advice, whole, everything=options.all)}


def _check(options: argparse.Namespace) -> Mapping[str, Callable[[], str]]:
    from grpo_theory.checks import check_log
    from grpo_theory.validation import ArgumentError

    try:
        check = check_log(options.table, clip=(options.clip_low, options.clip_high), cap=options.cap, **chosen_rows(options))
    except ArgumentError as error:
        raise ValueError(error.renamed(RENAMED)) from None
    return {"json": check.to_json, "text": check.to_text}


def _read(options: argparse.Namespace) -> Mapping[str, Callable[[], str]]:
    from grpo_theory.checks import read_log

    own: dict[str, Any] = {name: getattr(options, name) for name in OWN}
    for name, least in (("right", -inf), ("difference", 0.0)):
        if own[name] is not None and not least < own[name] < inf:
            raise ValueError(f"--{name} must be a finite number{' above 0' if least == 0.0 else ''}, got {own[name]:g}")
    reading = read_log(options.table, **own, **chosen_rows(options))
    columns = fill(f"{'Columns':<12}{reading.log.findings.reading[1].removeprefix('columns: ')}", 100, subsequent_indent=" " * 12)
    text = f"{reading.to_text(options.all)}{columns}\n"
    return {"json": reading.to_json, "text": lambda: text, "prompts": reading.prompts_csv}


plan_command = Command("advise on group size, batch, baseline and learning rate from a table of rollouts", "plan", _plan)
check_command = Command("check a trainer from its log: convention of advantages, wrong groups, ratios", "check", _check)
read_command = Command("read a log: what to do, signal, course, prompts never solved, pass@k, two logs", "read", _read)
