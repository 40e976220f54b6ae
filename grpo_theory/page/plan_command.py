"""`grpo-theory plan`: reads a table of rollouts, prints the advice, writes JSON and a page.

What is slow to import is imported after the command line is understood.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_options, chosen_rows, rewards_of
from grpo_theory.user_text import printable

if TYPE_CHECKING:
    from grpo_theory.plan.advice import Advice
    from grpo_theory.plan.run_advice import RunAdvice

HELP = "advise on group size, batch, baseline and learning rate from a table of rollouts"
STEP = 1024
"""The budget of a step, if only the responses of the run are given."""
LIMITS = ("budget", "cost_prompt", "cost_response", "max_group_size", "max_responses", "min_prompts", "multiple_of")
"""The options that say what one batch may cost and must fit."""


def describe(plan: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    add_options(plan, "plan")


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
    from grpo_theory.intervals.ragged import RewardCounts
    from grpo_theory.logs import RolloutLog, read_reward_counts, read_rollouts
    from grpo_theory.page.section import option
    from grpo_theory.plan import Limits, advise, advise_run
    from grpo_theory.plan.batches import LARGEST_GROUP
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
