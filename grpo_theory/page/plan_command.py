"""`grpo-theory plan`: reads a table of rollouts, prints the advice, writes JSON and a page.

What is slow to import is imported after the command line is understood.
"""

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_theory.page.outputs import named, places, printed, write
from grpo_theory.user_text import printable

if TYPE_CHECKING:
    from grpo_theory.plan.advice import Advice


def add(commands: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:
    """Describe the options, and return the parser of this subcommand."""
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
    return plan


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


def run(options: argparse.Namespace) -> int:
    """Advise, write the files that were asked for, and print the text or JSON; returns the exit status."""
    asked = places({kind: getattr(options, kind) for kind in ("json", "html")}, options.table, _files(options.table))
    try:
        advice = _advice(options)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
    write({place: getattr(advice, f"to_{kind}")() for kind, place in asked.items()})
    with named("standard output"):
        print(advice.to_json() if printed(options.json) else advice, end="", flush=True)
    return 0


def _files(table: str) -> list[Path]:
    """Return the files that will be read; none where the reader will say what is wrong with the table."""
    from grpo_theory.samples.log_file import files_of  # pyarrow is slow to import

    try:
        return files_of(Path(table)) if table else []
    except (OSError, ValueError):
        return []


def _advice(options: argparse.Namespace) -> "Advice":
    from grpo_theory.plan.advice import advise
    from grpo_theory.plan.cost import LARGEST_GROUP
    from grpo_theory.samples import read_reward_counts, read_rollouts

    named = {name: getattr(options, name) for name in ("prompt", "reward", "response", "step")}
    named |= {"steps": int(options.steps) if options.steps.isdigit() else options.steps}
    if sys.stderr.isatty():
        print(f"reading {printable(options.table)}", file=sys.stderr)
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
