"""`grpo-theory watch`: reads the files that a trainer writes for each step as they come, and prints a line for each.

What is slow to import is imported after the command line is understood.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from grpo_theory.page.row_options import add_options, chosen_rows
from grpo_theory.user_text import LONGEST_MESSAGE, printable

if TYPE_CHECKING:
    from grpo_theory.live.monitor import Monitor, Reading
    from grpo_theory.live.step_files import StepFiles

HELP = "read a trainer's rollouts while it runs: a line for each step, a remark where the advice changes"
COLUMNS = ("prompt", "reward", "response", "trajectory", "scores")


def describe(watch: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    add_options(watch, "watch")


def run(options: argparse.Namespace) -> int:
    """Print what comes until it is interrupted, or what is there; returns the exit status."""
    from grpo_theory.validation import as_positive

    try:
        interval = as_positive("--interval", options.interval)
        from grpo_theory.live.monitor import Monitor
        from grpo_theory.live.step_files import StepFiles

        files = StepFiles(options.folder)
        monitor = Monitor(every=1, estimator=options.estimator, overhead=None)
        if not options.once and not files.present():
            print(f"waiting for files STEP.jsonl in {printable(options.folder)}", file=sys.stderr)
        while True:
            read = _print_new(files, monitor, options)
            if options.once:
                return _end(files, read)
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0


def _print_new(files: "StepFiles", monitor: "Monitor", options: argparse.Namespace) -> int:
    """Print a line for each step whose file is whole now; a file that cannot be read is named, and the others are read.

    Returns how many were read.
    """
    from grpo_theory.live.step_files import read_step
    from grpo_theory.validation import counted

    read = 0
    for step, path in files.whole(ended=options.once):
        try:
            log = read_step(path, **{name: getattr(options, name) for name in COLUMNS}, **chosen_rows(options))
        except (OSError, ValueError, TypeError) as error:
            print(f"step {step}: not read: {printable(error, LONGEST_MESSAGE)}", flush=True)
            continue
        rollouts = log.rollouts
        sketch = None if rollouts.scores is None else rollouts.scores.__getitem__
        reading = monitor.step(step, rollouts.rewards, rollouts.prompts[rollouts.index].tolist(), sketch=sketch)
        sizes = "" if rollouts.sizes.min() == rollouts.sizes.max() else f" to {rollouts.sizes.max()}"
        groups = f"{counted(rollouts.batch_size, 'group')} of {rollouts.sizes.min()}{sizes}"
        print(f"step {step}: {groups}, mean reward {rollouts.rewards.mean():.3g}{line(reading)}", flush=True)
        for remark in reading.remarks:
            print(f"  {remark}", flush=True)
        read += 1
    return read


def line(reading: "Reading") -> str:
    """Return what a reading says in numbers, to go on with a line."""
    numbers, text = reading.numbers, ""
    if "groups_with_signal" in numbers:
        low, high = numbers["groups_with_signal_low"], numbers["groups_with_signal_high"]
        text += f", signal in {numbers['groups_with_signal']:.0%} of them ({low:.0%} to {high:.0%})"
    if "efficiency" in numbers:
        low, high = numbers["best_group_size_low"], numbers["best_group_size_high"]
        text += f", efficiency {numbers['efficiency']:.2g}, best group size {numbers['best_group_size']:g} ({low:g} to {high:g})"
    return text


def _end(files: "StepFiles", read: int) -> int:
    """Name the files that are half written; refuse a folder without files, and one of which none could be read."""
    if not files.present():
        raise ValueError(
            f"DIR must hold files named by their step, as 7.jsonl; '{printable(files.folder)}' has none "
            "(without --once they are waited for)"
        )
    for path in files.waiting():
        print(f"{printable(path.name)}: half written, left out", file=sys.stderr)
    if not read:
        raise ValueError(f"no step of '{printable(files.folder)}' could be read, for the reasons above")
    return 0
