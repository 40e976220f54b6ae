"""`grpo-theory check`: reads what a trainer logged, and says which convention it follows and what contradicts it.

What is slow to import is imported after the command line is understood.
"""

import argparse
from typing import TYPE_CHECKING

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_options, chosen_rows, rewards_of

if TYPE_CHECKING:
    from grpo_theory.checks import TrainerCheck

HELP = "check a trainer from its log: convention of the advantages, wrong groups, importance ratios"
COLUMNS = ["prompt", "length", "response", "step", "trajectory", "scores", "advantage"]
COLUMNS += ("logprobs", "old_logprobs", "rollout_logprobs", "mask")


def describe(check: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    add_options(check, "check")


def run(options: argparse.Namespace) -> int:
    """Check, write the file that was asked for, and print the text or JSON; returns the exit status."""
    from grpo_theory.page.check.record import check_to_json  # what it offers needs numpy
    from grpo_theory.page.check.text import check_to_text

    asked = targets({"json": options.json}, options.table, log_files(options.table))
    try:
        check = _check(options)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
    write({target: check_to_json(check) for target in asked.values()})
    with named("standard output"):
        print(check_to_json(check) if printed(options.json) else check_to_text(check), end="", flush=True)
    return 0


def _check(options: argparse.Namespace) -> "TrainerCheck":
    from grpo_theory.checks import check_log
    from grpo_theory.validation import ArgumentError

    columns = {name: getattr(options, name) for name in COLUMNS} | {"reward": rewards_of(options.reward)}
    try:
        clip = options.clip_low, options.clip_high
        return check_log(options.table, clip=clip, cap=options.cap, columns=columns, rows=chosen_rows(options))
    except ArgumentError as error:
        raise ValueError(error.renamed({"clip[0]": "--clip-low", "clip[1]": "--clip-high", "cap": "--cap"})) from None
