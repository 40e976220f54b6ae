"""`grpo-theory plan`: reads a table of rollouts, prints the advice, writes JSON and a page.

What is slow to import is imported after the command line is understood.
"""

import argparse

from grpo_theory.page.outputs import log_files, named, printed, targets, write
from grpo_theory.page.row_options import add_options, chosen_rows

HELP = "advise on group size, batch, baseline and learning rate from a table of rollouts"
STEP = 1024
"""The responses of a step, in pairs, if only those of the run are given."""
LIMITS = ("budget", "cost_prompt", "cost_response", "max_group_size", "max_responses", "min_prompts", "multiple_of")
"""The options that say what one batch may cost and must fit."""


def describe(plan: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    add_options(plan, "plan")


def run(options: argparse.Namespace) -> int:
    """Advise, write the files that were asked for, and print the text or JSON; returns the exit status."""
    from grpo_theory import page  # what it offers needs numpy, and the curve matplotlib
    from grpo_theory.logs import read_rollouts
    from grpo_theory.page.section import option
    from grpo_theory.plan import Limits, advise, advise_run
    from grpo_theory.validation import ArgumentError

    asked = targets({kind: getattr(options, kind) for kind in ("json", "html")}, options.table, log_files(options.table))
    log, whole = None, None
    try:
        limiting = {name: given for name in LIMITS if (given := getattr(options, name)) is not None}
        limiting["budget"] = _budget(options)
        log = read_rollouts(options.table, **chosen_rows(options))
        given = {name: getattr(options, name) for name in ("group_size", "estimator", "level", "tolerance")}
        advice = advise(log, Limits(**limiting), **given)
        if options.total is not None:
            whole = advise_run(
                log,
                options.total,
                training_prompts=options.training_prompts,
                estimator=options.estimator,
                group_size=options.group_size,
                costs=(options.cost_prompt, options.cost_response),
                largest=options.max_group_size or STEP,
            )
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or options.table) from None
    except ArgumentError as error:
        raise ValueError(error.renamed({name: option(name) for name in vars(options)})) from None
    except ValueError as error:
        if log is None:
            raise
        raise ValueError(f"{error}. What was read: {'; '.join(log.findings.reading[1:3])}") from None
    write({target: getattr(page, f"to_{kind}")(advice, whole) for kind, target in asked.items()})
    with named("standard output"):
        text = page.to_json(advice, whole) if printed(options.json) else page.to_text(advice, whole, everything=options.all)
        print(text, end="", flush=True)
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
    total = check_total(options.total, (options.cost_prompt, options.cost_response))
    if options.budget is None:
        return min(STEP * (0.5 * options.cost_prompt + options.cost_response), total)
    if options.budget > total:
        raise ValueError(
            f"--total {total:,.0f} is less than one batch of --budget {options.budget:,.0f}. Here --total counts the responses "
            "of the whole run, or what they cost, and --budget is what one batch may cost"
        )
    return float(options.budget)
