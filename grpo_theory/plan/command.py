"""The installed command, `grpo-theory plan`: reads a table of rollouts, prints the advice, writes JSON and a page.

What is slow to import is imported after the command line is understood.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from grpo_theory.plan.advice import Advice

REFUSED = 2
TO_TERMINAL = "-"
CAN_BE_WRITTEN = "must be a file in a folder that exists and can be written"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="grpo-theory", description="What is true about GRPO, for your own rollouts.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    plan = commands.add_parser(
        "plan",
        help="advise on group size, batch, baseline and learning rate from a table of rollouts",
        description="Advise on group size, batch, baseline and learning rate from a table of rollouts, one row a response: "
        "prompt id (or prompt) and reward, and for the best group size a sketch of its score (gt.sketch). "
        "The columns that TRL (log_completions) and verl (rollout_data_dir) write are recognised.",
    )
    plan.add_argument("table", metavar="TABLE", help="a CSV, JSON lines or Parquet file, or a folder of them")
    plan.add_argument(
        "--budget", type=float, required=True, metavar="N", help="what one batch may cost: responses, or the unit of the costs"
    )
    _add_batch(plan.add_argument_group("the batch"))
    _add_columns(plan.add_argument_group("columns, where their names are not recognised"))
    output = plan.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write everything as JSON; - prints it in place of the text")
    output.add_argument("--html", metavar="FILE", help="write a page with the text and the curves")
    output.add_argument("--level", type=float, default=0.95, help="confidence level of the limits (default: 0.95)")
    output.add_argument(
        "--tolerance", type=float, default=0.05, help="a share of additional error that does not matter (default: 0.05)"
    )
    return top


def _add_batch(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--group-size", type=int, metavar="G", help="the group size that you use now, to be compared")
    group.add_argument(
        "--estimator",
        metavar="NAME",
        help="the advantages that you use now, as trl_grpo or verl_grpo: the plan then keeps their baseline (default: the plan "
        "compares four baselines)",
    )
    group.add_argument(
        "--cost-prompt", type=float, default=0.0, metavar="A", help="cost of a prompt, whatever its group: prefill (default: 0)"
    )
    group.add_argument("--cost-response", type=float, default=1.0, metavar="B", help="cost of a response: decoding (default: 1)")
    group.add_argument(
        "--max-group-size", type=int, metavar="G", help="the largest group to consider (default, and at most: 4096)"
    )
    group.add_argument(
        "--max-responses", type=int, metavar="N", help="the most responses that fit in one batch at once, as in memory"
    )
    group.add_argument("--min-prompts", type=int, default=1, metavar="B", help="the fewest prompts in a batch (default: 1)")
    group.add_argument(
        "--multiple-of", type=int, default=1, metavar="M", help="a batch's responses must be a multiple of this (default: 1)"
    )


def _add_columns(group: argparse._ArgumentGroup) -> None:
    for name, meaning in (
        ("prompt", "the prompt's id or text"),
        ("length", "the response's length"),
        ("response", "the response's id or text"),
        ("step", "the training step"),
        ("scores", "sketches: a column of lists, or what the names of several columns begin with"),
    ):
        group.add_argument(f"--{name}", metavar="COLUMN", help=meaning)
    group.add_argument("--reward", metavar="COLUMN", action="append", help="the reward; given several times, their sum")
    group.add_argument(
        "--steps",
        default="newest",
        metavar="newest|last|N",
        help="of each prompt its newest group, or the groups of the last or of one training step (default: newest)",
    )
    group.add_argument(
        "--rewards-only", action="store_true", help="leave sketches out, in memory that does not grow with the table's rows"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, or 2 for a mistake, which one message names."""
    options = parser().parse_args(arguments)
    try:
        places = _places(options)
        advice = _advice(options)
        _write({place: getattr(advice, f"to_{kind}")() for kind, place in places.items()})
        print(advice.to_json() if options.json == TO_TERMINAL else advice, end="")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _refuse(f"{error.filename or options.table}: {error.strerror or error}")
    except (TypeError, ValueError) as error:
        return _refuse(str(error))
    return 0


def _refuse(message: str) -> int:
    print(f"grpo-theory plan: {message}", file=sys.stderr)
    return REFUSED


def _advice(options: argparse.Namespace) -> "Advice":
    from grpo_theory.plan.advice import advise
    from grpo_theory.plan.cost import LARGEST_GROUP
    from grpo_theory.samples import read_reward_counts, read_rollouts

    named = {name: getattr(options, name) for name in ("prompt", "reward", "response", "step")}
    named |= {"steps": int(options.steps) if options.steps.isdigit() else options.steps}
    if sys.stderr.isatty():
        print(f"reading {options.table}", file=sys.stderr)
    if options.rewards_only:
        counts, findings = read_reward_counts(options.table, **named)
    else:
        log = read_rollouts(options.table, **named, length=options.length, scores=options.scores)
        findings = log.findings
    try:
        return advise(
            counts if options.rewards_only else log.rollouts,
            options.budget,
            cost_prompt=options.cost_prompt,
            cost_response=options.cost_response,
            group_size=options.group_size,
            max_group_size=LARGEST_GROUP if options.max_group_size is None else options.max_group_size,
            max_responses=options.max_responses,
            min_prompts=options.min_prompts,
            multiple_of=options.multiple_of,
            estimator=options.estimator,
            level=options.level,
            tolerance=options.tolerance,
            findings=findings,
        )
    except ValueError as error:
        raise ValueError(_in_options(str(error), vars(options))) from None


def _in_options(message: str, names: Iterable[str]) -> str:
    """Return a message about the arguments of `advise` in the words of the command line: --min-prompts for min_prompts."""
    arguments = "|".join(name for name in names if "_" in name or name == "budget")
    return re.sub(rf"\b({arguments})\b(?= must|[ ][\d])", lambda found: f"--{found[1].replace('_', '-')}", message)


def _places(options: argparse.Namespace) -> dict[str, Path]:
    """Return the files to be written; raise ValueError, before anything is read, if one cannot be or would replace the table."""
    found: dict[str, Path] = {}
    for kind in ("json", "html"):
        given = getattr(options, kind)
        if given is None or (kind == "json" and given == TO_TERMINAL):
            continue
        if given == TO_TERMINAL:
            raise ValueError(f"--{kind} must be a file, got {TO_TERMINAL}; only --json can be printed")
        try:
            path = _place(kind, given, Path(options.table).resolve())
        except OSError as error:
            raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}: {error.strerror}") from None
        if path in found.values():
            raise ValueError(f"--json and --html must be different files, got {given} for both")
        found[kind] = path
    return found


def _place(kind: str, given: str, table: Path) -> Path:
    """Return where a file is to be written, after a trial that leaves nothing; ValueError or OSError if it cannot be."""
    path = Path(given).resolve()
    if path == table or (path.exists() and table.exists() and path.samefile(table)):
        raise ValueError(f"--{kind} must not be the table itself, got {given}")
    if table.is_dir() and table in path.parents:
        raise ValueError(f"--{kind} must be outside the table's folder, whose files are the table, got {given}")
    if (path.exists() and not path.is_file()) or not path.parent.is_dir():
        raise ValueError(f"--{kind} {CAN_BE_WRITTEN}, got {given}")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES))
    part = _part(path)
    part.touch(exist_ok=False)
    part.unlink()
    return path


def _part(path: Path) -> Path:
    """Return the name under which a file is written before it is whole."""
    return path.with_name(f".{uuid4().hex}")


def _write(texts: dict[Path, str]) -> None:
    """Write files under other names, and give them theirs when all are written; an error names the file that was asked for."""
    parts = {path: _part(path) for path in texts}
    try:
        for path, text in texts.items():
            with _named(path):
                parts[path].write_text(text, encoding="utf-8")
        for path, part in parts.items():
            with _named(path):
                part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name a file in the OSError that an attempt to write it raises."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
