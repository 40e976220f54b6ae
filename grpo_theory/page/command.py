"""The installed command, `grpo-theory`: one file for each subcommand, and what all of them do with a mistake.

A subcommand is a module with `HELP`, its line in the help, and two functions. ``describe(parser)`` adds its description and its
options, and is called only if the subcommand is asked for. ``run(options)`` does the work and returns the exit status. It may
raise a `ValueError` or a `TypeError` for a mistake of the user, and an `OSError` with the name of a file. Each becomes one line.
To add a subcommand, write its module and name it in `SUBCOMMANDS`. `--help` imports all of them, so such a module imports inside
``run`` what is slow to import.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo_theory.page import new_command, verify_command
from grpo_theory.page.advice import watch_command
from grpo_theory.page.advice.log_commands import check_command, plan_command, read_command
from grpo_theory.page.listing_commands import estimators_command, problems_command
from grpo_theory.user_text import LONGEST_MESSAGE, Parser, printable

SUBCOMMANDS: dict[str, Any] = {
    "plan": plan_command,
    "read": read_command,
    "check": check_command,
    "watch": watch_command,
    "new": new_command,
    "verify": verify_command,
    "estimators": estimators_command,
    "problems": problems_command,
}
"""In the order in which the help lists them."""
REFUSED = 2
"""The exit status of a mistake of the user."""


def called() -> str:
    """Return the name by which the command was called: the installed one, or that of the package."""
    program = Path(sys.argv[0])
    return "python -m grpo_theory" if program.parts[-2:] == ("grpo_theory", "__main__.py") else "grpo-theory"


def parser(asked: Sequence[str]) -> argparse.ArgumentParser:
    """Describe the command line: all subcommands by a line, and those that are asked for with their options."""
    top = Parser(prog=called(), description="What is true about GRPO, for your own rollouts and theorems.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, subcommand in SUBCOMMANDS.items():
        described = commands.add_parser(name, help=subcommand.HELP)
        described.set_defaults(act=subcommand.run)  # run is a column of logs
        if name in asked:
            subcommand.describe(described)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the subcommand's exit status, or 2 for a mistake, which one line describes."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(arguments).parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of few characters, as of ASCII alone, gets others as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        return int(options.act(options))
    except BrokenPipeError:
        _say_no_more()
        return 0
    except OSError as error:
        _say_no_more()
        reason = error.strerror or str(error)
        message = f"{error.filename}: {reason}" if error.filename else reason
    except (TypeError, ValueError) as error:
        message = str(error)
    with suppress(OSError):
        print(f"{called()} {options.command}: {printable(message, LONGEST_MESSAGE)}", file=sys.stderr)
    return REFUSED


def _say_no_more() -> None:
    """Drop what the standard output has not taken, which Python would try to write once more at its end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
