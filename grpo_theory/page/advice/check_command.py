"""`grpo-theory check` and `grpo-theory read`: what a log tells of its trainer, and what to do.

What is slow to import is imported after the command line is understood.
"""

import argparse
from collections.abc import Callable, Mapping
from math import inf
from textwrap import fill
from typing import Any, NamedTuple

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_options, chosen_rows

RENAMED = {"clip[0]": "--clip-low", "clip[1]": "--clip-high", "cap": "--cap"}
OWN = ("right", "against", "by", "difference")
"""Options of `read` that are arguments of `gt.checks.read_log`."""


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
        asked = targets({kind: getattr(options, kind, None) for kind in ("json", "prompts")}, options.table, read)
        try:
            texts = self.texts(options)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
        write({target: texts[kind]() for kind, target in asked.items()})
        with named("standard output"):
            print(texts["json" if printed(options.json) else "text"](), end="", flush=True)
        return 0


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


check_command = Command(
    "check a trainer from its log: convention of the advantages, wrong groups, importance ratios", "check", _check
)
read_command = Command(
    "read a log: what to do, signal, course, prompts always or never solved, pass@k, two logs compared", "read", _read
)
