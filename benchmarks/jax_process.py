"""JAX's rivals beside the simulator, in a process of its own: python -m benchmarks.jax_process TASKS, a request in JSON.

A request says what is asked for ("gradients" or "training"), of which tasks, on how many processors, and how long each is timed.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.process import run_python
from benchmarks.task import Task
from benchmarks.timing import REPETITIONS, SECONDS, Timed


@dataclass(frozen=True)
class Request:
    """What is asked of the process.

    Attributes
    ----------
    tasks : list of (problem's name, batch size, group size)
        Of gradients; training has its own tasks, and none are named here.
    processors : int
    seconds : float
    repetitions : int
    """

    processors: int
    tasks: list[tuple[str, int, int]] = field(default_factory=list)
    seconds: float = SECONDS
    repetitions: int = REPETITIONS


def ask(what: str, request: Request) -> list[list[Timed]]:
    """Return names and costs for each task: of the simulator on so many threads, and of each rival."""
    flags = f"--xla_force_host_platform_device_count={request.processors}"
    if request.processors == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    arguments = ["-m", "benchmarks.jax_process", what, json.dumps(asdict(request))]
    answers = run_python(arguments, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags})
    return [[Timed.read(each) for each in task] for task in answers]


def where(processors: int) -> str:
    """Name the process in words."""
    return "1 thread" if processors == 1 else f"{processors} threads and devices"


def answer(what: str, request: Request) -> Sequence[Sequence[Timed]]:
    """Time the contenders in this process."""
    import jax

    from benchmarks import jax_counts, jax_rivals, jax_training
    from benchmarks.simulator import simulator
    from benchmarks.timing import timed
    from benchmarks.training_task import TRAINING_TASKS, trainer

    jax.config.update("jax_enable_x64", what == "training")
    jax.config.update("jax_threefry_partitionable", False)  # the faster of the two
    contenders: list[list[Any]] = []
    if what == "training":
        contenders = [[trainer(each, workers=request.processors), *jax_training.rivals(each)] for each in TRAINING_TASKS]
    else:
        for task in (Task(*each) for each in request.tasks):
            rivals = [*jax_rivals.rivals(task), *jax_counts.rivals(task)]
            contenders.append([simulator(task, workers=request.processors), *rivals])
    return [timed(each, request.seconds, request.repetitions) for each in contenders]


if __name__ == "__main__":
    asked = Request(**json.loads(sys.argv[2]))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.processors])
    print(json.dumps(answer(sys.argv[1], asked)))
