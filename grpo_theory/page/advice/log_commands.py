"""`grpo-theory plan`, `check` and `read`: a group size from a log, what it tells of its trainer, and what to do.

What is slow to import is imported after the command line is understood.
"""

import argparse
from collections.abc import Callable, Mapping
from math import inf
from textwrap import fill
from typing import Any, NamedTuple

from grpo_theory.page.outputs import STANDARD_OUTPUT, log_files, named, targets, write
from grpo_theory.page.row_options import add_options, chosen_rows

RENAMED = {"clip[0]": "--clip-low", "clip[1]": "--clip-high", "cap": "--cap"}
OWN = ("right", "against", "by", "difference")
"""Options of `read` that are arguments of `gt.checks.read_log`."""
STEP = 1024
"""The responses of a step, in pairs, if only those of the run are given."""
LIMITS = ("budget", "cost_prompt", "cost_response", "max_group_size", "max_responses", "min_prompts", "multiple_of")
"""The options of `plan` that say what one batch may cost and must fit."""


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


def _plan(options: argparse.Namespace) -> Mapping[str, Callable[[], str]]:
    from grpo_theory import page  # what it offers needs numpy, and the curve matplotlib
    from grpo_theory.logs import read_rollouts
    from grpo_theory.page.section import option
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
