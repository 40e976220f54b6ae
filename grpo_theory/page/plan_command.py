"""`grpo-theory plan`: reads a table of rollouts, prints the advice, writes JSON and a page.

What is slow to import is imported after the command line is understood.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_rows, chosen_rows, rewards_of
from grpo_theory.user_text import printable

if TYPE_CHECKING:
    from grpo_theory.plan.advice import Advice
    from grpo_theory.plan.run_advice import RunAdvice

HELP = "advise on group size, batch, baseline and learning rate from a table of rollouts"
DESCRIPTION = (
    "Advise on group size, batch, baseline and learning rate from a log of rollouts. The log has the prompt (its id or text) and "
    "reward of each response. The best group size of one step also needs a sketch of each response's score (gt.sketch). Names "
    "and nestings that trainers write are recognised (docs/rollouts.md). The first lines of the answer say what was taken for "
    "what."
)
STEP = 1024
"""The budget of a step, if only the responses of the run are given."""
LIMITS = ("budget", "cost_prompt", "cost_response", "max_group_size", "max_responses", "min_prompts", "multiple_of")
"""The options that say what one batch may cost and must fit."""


def describe(plan: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    plan.description = DESCRIPTION
    plan.add_argument("table", metavar="TABLE", help="a CSV, JSON, Parquet or Arrow file (.gz, .zst), or a folder of them")
    plan.add_argument("--budget", type=float, metavar="N", help="what one batch may cost: responses, or the unit of the costs")
    whole = plan.add_argument_group("the whole run")
    whole.add_argument(
        "--total",
        type=float,
        metavar="N",
        help="the responses of the whole run. Small worlds are then trained for some seconds, and a group size for the run is "
        f"recommended from rewards alone. If --budget is not given, it is then {STEP:,}",
    )
    whole.add_argument(
        "--training-prompts", type=int, metavar="M", help="the prompts that are trained on (default: those of the table)"
    )
    _add_batch(plan.add_argument_group("the batch"))
    _add_columns(plan.add_argument_group("columns, where their names are not recognised"))
    _add_rows(plan.add_argument_group("rows"))
    output = plan.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write everything as JSON; - prints it in place of the text")
    output.add_argument("--html", metavar="FILE", help="write a page with the text and the curves")
    output.add_argument("--level", type=float, default=0.95, help="confidence level of the limits (default: 0.95)")
    output.add_argument(
        "--tolerance", type=float, default=0.05, help="a share of additional error that does not matter (default: 0.05)"
    )


def _add_batch(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--group-size", type=int, metavar="G", help="the group size that you use now, to be compared")
    group.add_argument(
        "--estimator",
        metavar="NAME",
        help="the estimator that you use now, such as rloo, trl_grpo or verl_grpo. The plan is then for it: by efficiency if it "
        "divides, and else by squared error. Without a name, four baselines without division are compared",
    )
    group.add_argument(
        "--cost-prompt", type=float, default=0.0, metavar="A", help="cost per prompt, whatever its group: prefill (default: 0)"
    )
    group.add_argument("--cost-response", type=float, default=1.0, metavar="B", help="cost per response: decoding (default: 1)")
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
    group.description = (
        "A column is a name, or a path through objects and lists: rewards.correct.score, messages.0. An empty name reads none."
    )
    group.add_argument(
        "--prompt",
        metavar="PATH",
        action="append",
        help="the prompt's id or text; given several times, the columns together are its id",
    )
    group.add_argument(
        "--reward",
        metavar="PATH[=WEIGHT]",
        action="append",
        help="the reward. Given several times, it is their sum, each times its weight (default: 1; negative for a penalty). "
        "A PATH n_correct/k is a number of successes of k, and pass_rate@n a share of n",
    )
    for name, meaning in (
        ("step", "the training step"),
        ("trajectory", "the id of a response whose turns are rows of their own"),
        ("response", "the response's id or text"),
        ("length", "the response's length"),
        ("scores", "sketches: a column of lists, or what the names of several columns begin with"),
    ):
        group.add_argument(f"--{name}", metavar="PATH", help=meaning)


def _add_rows(group: argparse._ArgumentGroup) -> None:
    add_rows(group)
    group.add_argument(
        "--reward-tolerance",
        type=float,
        default=0.0,
        metavar="T",
        help="rewards that differ by no more are taken for equal (default: 0)",
    )
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
    from grpo_theory import page  # what it offers needs numpy, and the curves matplotlib

    asked = targets({kind: getattr(options, kind) for kind in ("json", "html")}, options.table, log_files(options.table))
    try:
        advice, run = _advice(options)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
    write({target: getattr(page, f"to_{kind}")(advice, run) for kind, target in asked.items()})
    with named("standard output"):
        print(page.to_json(advice, run) if printed(options.json) else page.to_text(advice, run), end="", flush=True)
    return 0


def _budget(options: argparse.Namespace) -> float:
    """Return what a step may cost; ValueError where neither it nor the run's responses are given, and where they contradict."""
    from grpo_theory.plan.run_advice import check_total

    if options.total is None:
        if options.training_prompts is not None:
            raise ValueError("--training-prompts is of the whole run: give its responses too (--total)")
        if options.budget is None:
            raise ValueError("give what one batch may cost (--budget), or the responses of the whole run (--total), or both")
        return float(options.budget)
    total = check_total(options.total)
    if options.budget is None:
        return min(float(STEP), total)
    if options.cost_prompt == 0.0 and options.budget / options.cost_response > total:
        raise ValueError(
            f"--total {total:,.0f} is less than one batch of --budget {options.budget:,.0f}. Here --total counts the responses "
            "of the whole run, and --budget is what one batch may cost"
        )
    return float(options.budget)


def _progress(done: int, total: int) -> None:
    """Say on a terminal how many worlds were trained, on one line."""
    if sys.stderr.isatty():
        print(f"\rtraining small worlds: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _advice(options: argparse.Namespace) -> "tuple[Advice, RunAdvice | None]":
    from grpo_theory.page.section import option
    from grpo_theory.plan import Limits, advise, advise_run
    from grpo_theory.plan.batches import LARGEST_GROUP
    from grpo_theory.samples import RewardCounts, RolloutLog, read_reward_counts, read_rollouts
    from grpo_theory.validation import ArgumentError

    columns = {name: getattr(options, name) for name in ("prompt", "response", "step", "trajectory")}
    columns |= {"steps": int(options.steps) if options.steps.isdigit() else options.steps}
    columns |= {"reward": rewards_of(options.reward), **chosen_rows(options)}
    columns |= {"reward_tolerance": options.reward_tolerance}
    limiting = {name: getattr(options, name) for name in LIMITS}
    if options.max_group_size is None:
        limiting["max_group_size"] = LARGEST_GROUP
    asked = {name: getattr(options, name) for name in ("group_size", "estimator", "level", "tolerance")}
    rollouts: RewardCounts | RolloutLog | None = None
    findings = None  # a log has its own
    try:
        limiting["budget"] = _budget(options)
        if sys.stderr.isatty():
            print(f"reading {printable(options.table)}", file=sys.stderr)
        if options.rewards_only:
            rollouts, findings = read_reward_counts(options.table, **columns)
        else:
            rollouts = read_rollouts(options.table, **columns, length=options.length, scores=options.scores)
        advice = advise(rollouts, Limits(**limiting), **asked, findings=findings)
        if options.total is None:
            return advice, None
        largest = min(int(limiting["max_group_size"]), int(options.total))
        given = {"training_prompts": options.training_prompts, "estimator": options.estimator, "largest": largest}
        return advice, advise_run(rollouts, options.total, **given, progress=_progress)
    except ArgumentError as error:
        raise ValueError(error.renamed({name: option(name) for name in vars(options)})) from None
    except ValueError as error:
        read = rollouts.findings if isinstance(rollouts, RolloutLog) else findings
        if read is None:
            raise
        raise ValueError(f"{error}. What was read: {'; '.join(read.reading[1:3])}") from None
