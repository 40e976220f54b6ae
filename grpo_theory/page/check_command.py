"""`grpo-theory check`: reads what a trainer logged, and says which convention it follows and what contradicts it.

What is slow to import is imported after the command line is understood.
"""

import argparse
from typing import TYPE_CHECKING

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_rows, chosen_rows, rewards_of

if TYPE_CHECKING:
    from grpo_theory.checks import TrainerCheck

HELP = "check a trainer from its log: convention of the advantages, wrong groups, importance ratios"
DESCRIPTION = (
    "Check a trainer from its log, one row per response. The report says which convention the logged advantages follow, and "
    "which groups contradict it and why. It says whether the loss at the start is as it should be. It compares three policies: "
    "the one that sampled, the one at the start of the update, and the one that is trained. The command needs prompt, reward, "
    "and advantage or log-probabilities. The report names the columns that further checks need."
)
COLUMNS = {
    "prompt": "the prompt's id or text",
    "length": "the response's length",
    "response": "the response's id or text",
    "step": "the training step",
    "trajectory": "the id of a response whose turns are rows of their own; '' reads each row as a response",
    "scores": "sketches: a column of lists, or what the names of several columns begin with",
    "advantage": "the advantage: a number, or a list with one number for every token",
    "logprobs": "log-probabilities of the policy that is trained: lists per token, or sums per response",
    "old_logprobs": "log-probabilities of the policy at the start of the update",
    "rollout_logprobs": "log-probabilities of the policy that sampled, as the sampler computed them",
    "mask": "lists that are 0 for tokens that do not count",
}


def describe(check: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    check.description = DESCRIPTION
    check.add_argument("table", metavar="LOG", help="a CSV, JSON lines or Parquet file, or a folder of them")
    group = check.add_argument_group("columns, where their names are not recognised ('' reads none)")
    for name, meaning in COLUMNS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar="COLUMN", help=meaning)
    group.add_argument(
        "--reward",
        metavar="COLUMN[=WEIGHT]",
        action="append",
        help="the reward; given several times, their sum, each times its weight (default: 1)",
    )
    add_rows(check.add_argument_group("rows"))
    trainer = check.add_argument_group("the trainer's bounds on ratios")
    trainer.add_argument("--clip-low", type=float, default=0.2, metavar="E", help="the clip's width below 1 (default: 0.2)")
    trainer.add_argument("--clip-high", type=float, default=0.2, metavar="E", help="the clip's width above 1 (default: 0.2)")
    trainer.add_argument(
        "--cap", type=float, default=2.0, metavar="C", help="the bound on the ratio of trainer to sampler, per token (default: 2)"
    )
    output = check.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write everything as JSON; - prints it in place of the text")


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
