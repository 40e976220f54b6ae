"""Sweeps: the cost of a response as one size of the work changes, with the floor, and rivals where they apply."""

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

import grpo_theory as gt
from benchmarks import numpy_counts
from benchmarks.jax_process import Request, ask
from benchmarks.numpy_rivals import tuned
from benchmarks.simulator import simulate, simulator
from benchmarks.task import Task
from benchmarks.timing import Contender, costs_of, fastest, timed
from benchmarks.training_task import TrainingTask, trainer
from benchmarks.work import Peaks, gradient_work, training_work

SECONDS, REPETITIONS = 0.06, 3
STEPS, TRAINED_RESPONSES = 100, 1 << 20  # of a training run, and of a call at the most, unless one block has more
RIVALS_EVERY = 2  # rivals are timed at so few of the group sizes
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SIMULATOR, TRAINER, NUMPY, JAX = "gradients", "training", "NumPy", "JAX"


class Point(NamedTuple):
    """One point of a figure.

    Attributes
    ----------
    sweep : str
        What changes: G, K, d, B, workers or replications.
    who : str
        Whose cost it is.
    size : float
    cost : float
        Nanoseconds a response, the median.
    floor : float, optional
        Of the simulators, and none of their rivals.
    """

    sweep: str
    who: str
    size: float
    cost: float
    floor: float | None


def group_sizes(peaks: Peaks) -> list[Point]:
    """Sweep G, with the fastest rivals."""
    tasks = [Task("tabular", 8, size) for size in GROUP_SIZES]
    found: list[Point] = []
    found += _gradients("G", [(task.group_size, task) for task in tasks], peaks)
    compared = tasks[::RIVALS_EVERY]
    for task in compared:
        rivals = timed([tuned(task), *numpy_counts.rivals(task)], SECONDS, REPETITIONS)
        found.append(Point("G", NUMPY, task.group_size, fastest(rivals).cost.median, None))
    if find_spec("jax") is not None:
        answers = ask("gradients", Request(1, [task.key for task in compared], SECONDS / 2, REPETITIONS))
        for task, (_, *rivals) in zip(compared, answers, strict=True):
            found.append(Point("G", JAX, task.group_size, fastest(rivals).cost.median, None))
    return found + _training("G", [(size, _train("kl-tabular", 1, size)) for size in GROUP_SIZES], peaks)


def responses(peaks: Peaks) -> list[Point]:
    """Sweep K."""
    sizes = (2, 4, 8, 16, 32, 64, 128, 256)
    found = _gradients("K", [(size, Task(f"tabular of {size}", 8, 64)) for size in sizes], peaks)
    return found + _training("K", [(size, _train(f"tabular of {size}", 1, 64)) for size in sizes], peaks)


def dimensions(peaks: Peaks) -> list[Point]:
    """Sweep d, of linear policies."""
    sizes = (2, 4, 8, 16, 32, 64, 128, 256)
    found = _gradients("d", [(size, Task(f"linear of {size}", 4, 64)) for size in sizes], peaks)
    return found + _training("d", [(size, _train(f"linear of {size}", 4, 64)) for size in sizes], peaks)


def batches(peaks: Peaks) -> list[Point]:
    """Sweep B."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    found = _gradients("B", [(size, Task("tabular", size, 16)) for size in sizes], peaks)
    return found + _training("B", [(size, _train("kl-tabular", size, 16)) for size in sizes], peaks)


def workers(peaks: Peaks) -> list[Point]:
    """Sweep the workers, up to twice as many as there are processors."""
    task, course, found = Task("tabular", 8, 64), _train("linear", 4, 8), []
    most = 2 * (os.cpu_count() or 1)
    for count in (n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most):
        one, other = costs_of([simulator(task, workers=count), trainer(course, workers=count)], 3 * SECONDS, REPETITIONS)
        shared = min(count, os.cpu_count() or 1)
        found.append(Point("workers", SIMULATOR, count, one.median, peaks.floor(gradient_work(task)) / shared))
        found.append(Point("workers", TRAINER, count, other.median, peaks.floor(training_work(course)) / shared))
    return found


def replications(peaks: Peaks) -> list[Point]:
    """Sweep the replications, and runs, of one call."""
    task, found = Task("tabular", 8, 16), []
    for size in (10, 10**2, 10**3, 10**4, 10**5, 10**6):

        def run(rounds: int, size: int = size) -> None:
            for _ in range(rounds):
                simulate(task, size)

        (cost,) = costs_of([Contender(SIMULATOR, run, size * task.batch_responses)], SECONDS, REPETITIONS)
        found.append(_of_gradients("replications", task, size, cost.median, peaks))
    courses = [
        (size, TrainingTask("kl-tabular", 1, 4, gt.Harmonic(5.0, 10), STEPS, size)) for size in (10, 100, 1000, 10**4, 10**5)
    ]
    return found + _training("replications", courses, peaks)


def _train(problem_name: str, batch_size: int, group_size: int) -> TrainingTask:
    runs = max(128, min(2048, TRAINED_RESPONSES // (STEPS * batch_size * group_size) // 128 * 128))
    return TrainingTask(problem_name, batch_size, group_size, gt.Constant(0.05), STEPS, runs)


def _gradients(sweep: str, tasks: Iterable[tuple[int, Task]], peaks: Peaks) -> list[Point]:
    found = []
    for size, task in tasks:
        (cost,) = costs_of([simulator(task)], SECONDS, REPETITIONS)
        found.append(_of_gradients(sweep, task, size, cost.median, peaks))
    return found


def _of_gradients(sweep: str, task: Task, size: int, cost: float, peaks: Peaks) -> Point:
    return Point(sweep, SIMULATOR, size, cost, peaks.floor(gradient_work(task)))


def _training(sweep: str, tasks: Iterable[tuple[int, TrainingTask]], peaks: Peaks) -> list[Point]:
    found = []
    for size, task in tasks:

        def run(rounds: int, task: TrainingTask = task) -> Any:
            for _ in range(rounds):
                task.simulate(task.runs)

        (cost,) = costs_of([Contender(TRAINER, run, task.responses)], SECONDS, REPETITIONS)
        found.append(Point(sweep, TRAINER, size, cost.median, peaks.floor(training_work(task))))
    return found


SWEEPS: dict[str, Callable[[Peaks], list[Point]]] = {
    "K": responses,
    "d": dimensions,
    "B": batches,
    "workers": workers,
    "replications": replications,
    "G": group_sizes,
}
"""All sweeps, by what changes."""
