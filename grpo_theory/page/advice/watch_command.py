"""`grpo-theory watch`: reads the files that a trainer writes for each step as they come, and prints a line for each.

What is slow to import is imported after the command line is understood.
"""

import argparse
import json
import re
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from grpo_theory.page.advice.log_commands import add_options, chosen_rows
from grpo_theory.user_text import LONGEST_MESSAGE, printable

HELP = "read a trainer's rollouts while it runs: a line for each step, a remark where the advice changes"


describe = partial(add_options, command="watch")


def run(options: argparse.Namespace) -> int:
    """Print what comes until it is interrupted, or what is there; returns the exit status."""
    from grpo_theory.live.monitor import Monitor
    from grpo_theory.page.advice.watch_command import STUCK, StepFiles
    from grpo_theory.validation import as_positive

    try:
        interval, files = as_positive("--interval", options.interval), StepFiles(options.folder)
        monitor = Monitor(every=1, estimator=options.estimator, overhead=None)
        if not options.once and not files.present():
            print(f"waiting for files STEP.jsonl or ..._STEP.parquet in {printable(options.folder)}", file=sys.stderr)
        read = 0
        while True:
            read += sum([_reported(monitor, options, *one) for one in files.whole(ended=options.once)])
            if options.once:
                break
            for path in files.waiting(STUCK):
                print(f"{printable(path.name)}: not whole, and it does not grow; left out until it does", file=sys.stderr)
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0
    folder = printable(options.folder)
    if not files.present():
        raise ValueError(f"DIR must hold files named by their step, as 7.jsonl; '{folder}' has none (without --once, it waits)")
    for path in files.waiting():
        print(f"{printable(path.name)}: {'half written' if path.stat().st_size else 'empty'}, left out", file=sys.stderr)
    if not read:
        raise ValueError(f"no step of '{folder}' could be read, for the reasons above")
    return 0


def _reported(monitor: Any, options: argparse.Namespace, step: int, path: Path, again: bool) -> bool:
    """Print a line for a step whose file is whole, and its remarks; return whether it could be read."""
    from grpo_theory.checks.estimates import Estimate
    from grpo_theory.checks.sentences import signal
    from grpo_theory.logs import read_rollouts
    from grpo_theory.validation import counted

    def estimate(name: str) -> Estimate:
        return Estimate(*(numbers.get(name + end, float("nan")) for end in ("", "_low", "_high")))

    name = f"step {step}" + " (its file has grown, read again)" * again
    try:
        rollouts = read_rollouts(path, **chosen_rows(options) | {"steps": "all"}).rollouts
    except (OSError, ValueError, TypeError) as error:
        print(f"{name}: not read: {printable(error, LONGEST_MESSAGE)}", flush=True)
        return False
    sketch = None if rollouts.scores is None else rollouts.scores.__getitem__
    _, numbers, remarks = monitor.step(step, rollouts.rewards, rollouts.prompts[rollouts.index].tolist(), sketch=sketch)
    sizes = "" if rollouts.sizes.min() == rollouts.sizes.max() else f" to {rollouts.sizes.max()}"
    groups = f"{counted(rollouts.batch_size, 'group')} of {rollouts.sizes.min()}{sizes}"
    text = f"{name}: {groups}, mean reward {rollouts.rewards.mean():.3g}"
    if "groups_with_signal" in numbers:
        text += f", {signal(*(estimate(f'groups_{kind}') for kind in ('with_signal', 'all_right', 'all_wrong')))}"
    if "efficiency" in numbers:
        size, low, high = estimate("best_group_size")
        text += f", efficiency {numbers['efficiency']:.2g}, best group size {size:g} ({low:g} to {high:g})"
    elif "sketched_prompts" in numbers:
        text += f", sketches of {numbers['sketched_prompts']:g} prompts: too few for a group size"
    print("\n  ".join([text, *remarks]), flush=True)
    return True


KINDS = {".jsonl", ".parquet"}
SETTLED = 3
"""The newest file of JSON lines has not grown for so many looks: a trainer may pause at the end of a line."""
STUCK = 12
"""A file that has not grown for so many looks, and is not whole, is named."""


class StepFiles:
    """The files STEP.jsonl or ..._STEP.parquet of a folder, each given out when it is whole, and again if it grows after that.

    A Parquet file is whole if it has its end mark. The last line of a whole file of JSON lines is an object.
    Such a file has not grown for some looks, or a later step has begun.

    Parameters
    ----------
    folder : Path
        Of files whose names hold the number of their step, as verl's rollout_data_dir or TRL's completions have them.

    Raises
    ------
    ValueError
        If the folder does not exist.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            found = "is a file" if folder.exists() else "does not exist"
            told = f"DIR must be a folder with a file for each step, as verl's rollout_data_dir; '{printable(folder)}'"
            raise ValueError(f"{told} {found}")
        self.folder = folder
        self._given: dict[Path, int] = {}
        self._looks: dict[Path, tuple[int, int]] = {}

    def present(self) -> list[tuple[int, Path]]:
        """Return the steps and files that are there, by step; names that begin with a dot are somebody's unfinished ones."""
        paths = (one for one in self.folder.iterdir() if one.suffix in KINDS and one.is_file() and not one.name.startswith("."))
        return sorted((int(numbers[-1]), one) for one in paths if (numbers := re.findall(r"\d+", one.stem)))

    def whole(self, *, ended: bool = False) -> list[tuple[int, Path, bool]]:
        """Return the steps and files that are whole and not given out as they are now, and whether each was given out before.

        Parameters
        ----------
        ended : bool, default False
            Nothing more will be written: it is enough that a file's end is whole.
        """
        files = self.present()
        ready = []
        for step, path in files:
            with suppress(FileNotFoundError):  # somebody tidies up
                size, (before, looks) = path.stat().st_size, self._looks.get(path, (-1, 0))
                looks = looks + 1 if size == before else 0
                self._looks[path] = size, looks
                settled = ended or path.suffix == ".parquet" or looks >= SETTLED or step < files[-1][0]
                if settled and size != self._given.get(path) and ends_whole(path):
                    ready.append((step, path, path in self._given))
                    self._given[path] = size
        return ready

    def waiting(self, looks: int | None = None) -> list[Path]:
        """Return the files that were never given out; if a number is given, those seen unchanged for just so many looks."""
        unread = [path for _, path in self.present() if path not in self._given]
        return [path for path in unread if looks is None or self._looks.get(path, (0, 0))[1] == looks]


def ends_whole(path: Path) -> bool:
    """Return whether a file's end is whole: Parquet's mark, or a last line that is an object, which half of one is not."""
    end = path.read_bytes().rstrip()
    with suppress(ValueError, RecursionError):
        return end.endswith(b"PAR1") if path.suffix == ".parquet" else isinstance(json.loads(end.rpartition(b"\n")[2]), dict)
    return False
