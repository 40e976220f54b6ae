"""Command line of the benchmarks: the simulators against their rivals, and slower cases against the fastest one."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

import grpo_theory as gt
from benchmarks import numpy_rivals
from benchmarks.table import Row, markdown
from benchmarks.tasks import PRECISIONS, TASKS, TRAINED, Task, Training
from benchmarks.timing import Timed, timed

COUNTING = "16-bit words"
"""In the names of rivals that count outcomes, as the simulators do, in the place of looking at every response."""
SEEING = " that sees every response"
"""What people write who have not read this code: the rivals against which the targets were set."""
TEXTBOOK_TARGET, NUMPY_TARGET = 20.0, 5.0
LARGE_GROUP = 64
"""From this group size on more is asked of the simulator."""
SIX_ESTIMATORS = ("rloo", "reinforce", "oracle", "optimal", "dr_grpo", "grpo")
PLAIN = "graded of 2"
ROUTES = {
    "rewards of three values": ("graded of 3", "rloo"),
    "a penalty in the reward": ("penalised of 2", "rloo"),
    "a penalty, and a kernel that is called": ("penalised of 2", "grpo"),
    "a kernel that reads score norms": (PLAIN, "optimal_loo"),
}
"""What is slower than rewards 0 and 1: a problem and an estimator."""


def jax_target(task: Task) -> float:
    """Return by how much the simulator should be faster than JAX."""
    if isinstance(task, Training):
        return {"kl-tabular": 1.2, "linear": 2.5}[task.problem_name]
    return 3.5 if task.group_size >= LARGE_GROUP else 2.5


def rows_of(library: str, place: str, task: Task, times: list[Timed], target: float) -> list[Row]:
    """Return the rows of a library's fastest rivals of each kind and precision; medians are compared, least costs in brackets."""
    (own, *rivals), rows = times, []
    for precision in PRECISIONS if isinstance(task, Training) else ("",):
        of_it = [rival for rival in rivals if precision in rival.name]
        within = f" in {precision} precision" if precision else ""
        for kind, some in ((SEEING, [rival for rival in of_it if COUNTING not in rival.name]), ("", of_it)):
            best = min(some, key=lambda rival: rival.median)
            name, detail = (
                f"{library}{kind}{within} / simulator, {place}; {task.label}",
                f"{best} / {own} ns a response; {best.name}",
            )
            least = TEXTBOOK_TARGET if "textbook" in best.name else target
            rows.append(Row(name, best.median / own.median, detail, least=least))
    return rows


def numpy_rows(tasks: tuple[Task, ...]) -> list[Row]:
    """Compare one worker with NumPy."""
    rows = []
    for task in tasks:
        rows += rows_of("NumPy", "1 thread", task, timed([task.simulator(), *numpy_rivals.rivals(task)]), NUMPY_TARGET)
    return rows


def jax_rows(what: str, processors: int) -> list[Row]:
    """Compare so many workers with JAX on as many processors, in a process of its own."""
    tasks: tuple[Task, ...] = TRAINED if what == "training" else TASKS
    place = "1 thread" if processors == 1 else f"{processors} threads and devices"
    flags = f"--xla_force_host_platform_device_count={processors}"
    if processors == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    command = [sys.executable, "-m", "benchmarks.jax_rivals", what, str(processors)]
    places = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    top = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=top, env=places, stdout=subprocess.PIPE, text=True, check=True)
    rows = []
    for task, times in zip(tasks, json.loads(done.stdout), strict=True):
        rows += rows_of("JAX", place, task, [Timed(*each) for each in times], jax_target(task))
    return rows


def slower_rows() -> list[Row]:
    """Compare six estimators on the same draws with one, where groups are large, and slower cases with the fastest one."""
    rows = []
    for task in (task for task in TASKS if task.group_size >= LARGE_GROUP):
        one, six = timed([task.simulator(), task.simulator(estimators=SIX_ESTIMATORS)])
        name, detail = f"six estimators / one; {task.label}", f"{six} / {one} ns a response"
        rows.append(Row(name, six.median / one.median, detail, most=2.0))
    trained: dict[str, Any] = {"schedule": gt.Constant(0.05), "steps": 200, "runs": 2048}
    kinds: dict[str, Callable[[str, str], Task]] = {
        "tabular, 4 x 8": lambda problem, estimator: Task(problem, 4, 8, estimator),
        "tabular, 8 x 16": lambda problem, estimator: Task(problem, 8, 16, estimator),
        "training, tabular, 4 x 8": lambda problem, estimator: Training(problem, 4, 8, estimator, **trained),
    }
    for label, kind in kinds.items():
        plain, *others = timed([kind(*each).simulator() for each in ((PLAIN, "rloo"), *ROUTES.values())])
        for route, cost in zip(ROUTES, others, strict=True):
            name, detail = f"{route} / rewards 0 and 1; {label}", f"{cost} / {plain} ns a response"
            rows.append(Row(name, cost.median / plain.median, detail))
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "numpy": lambda: numpy_rows(TASKS),
    "jax-1": lambda: jax_rows("gradients", 1),
    "jax-2": lambda: jax_rows("gradients", 2),
    "slower": slower_rows,
    "training-numpy": lambda: numpy_rows(TRAINED),
    "training-jax-1": lambda: jax_rows("training", 1),
    "training-jax-2": lambda: jax_rows("training", 2),
}


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the yardsticks of the simulators.")
    top.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"measure these parts alone: {', '.join(PARTS)}")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    rows = []
    for name in tqdm([name for name in PARTS if name in (options.only or PARTS)], disable=None):
        print(f"measuring {name}", file=sys.stderr, flush=True)
        rows += PARTS[name]()
    print(markdown(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
