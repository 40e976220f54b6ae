"""Sweeps: the cost of a response as one size of the work changes, with the floor, and rivals where they apply."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

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


def _course(problem_name: str, batch_size: int, group_size: int) -> TrainingTask:
    runs = max(128, min(2048, TRAINED_RESPONSES // (STEPS * batch_size * group_size) // 128 * 128))
    return TrainingTask(problem_name, batch_size, group_size, gt.Constant(0.05), STEPS, runs)


POWERS = tuple(2**n for n in range(11))
SHAPES: dict[str, tuple[tuple[int, ...], Callable[[int], Task], Callable[[int], TrainingTask]]] = {
    "K": (POWERS[1:9], lambda n: Task(f"tabular of {n}", 8, 64), lambda n: _course(f"tabular of {n}", 1, 64)),
    "d": (POWERS[1:9], lambda n: Task(f"linear of {n}", 4, 64), lambda n: _course(f"linear of {n}", 4, 64)),
    "B": (POWERS[:9], lambda n: Task("tabular", n, 16), lambda n: _course("kl-tabular", n, 16)),
    "G": (POWERS[1:], lambda n: Task("tabular", 8, n), lambda n: _course("kl-tabular", 1, n)),
}
"""The sizes of a sweep, and at each size what is simulated and what is trained."""


def shapes(sweep: str, peaks: Peaks) -> list[Point]:
    """Sweep a size of the problem or of the batch."""
    sizes, task_of, course_of = SHAPES[sweep]
    points = [_gradients(sweep, n, task_of(n), simulator(task_of(n)), peaks) for n in sizes]
    return points + [_training(sweep, n, course_of(n), peaks) for n in sizes]


def group_sizes(peaks: Peaks) -> list[Point]:
    """Sweep G, with the fastest rivals."""
    sizes, task_of, _ = SHAPES["G"]
    tasks, points = [task_of(n) for n in sizes[::RIVALS_EVERY]], shapes("G", peaks)
    for task in tasks:
        rivals = timed([tuned(task), *numpy_counts.rivals(task)], SECONDS, REPETITIONS)
        points.append(Point("G", NUMPY, task.group_size, fastest(rivals).cost.median, None))
    if find_spec("jax") is not None:
        answers = ask("gradients", Request(1, [task.key for task in tasks], SECONDS / 2, REPETITIONS))
        for task, (_, *rivals) in zip(tasks, answers, strict=True):
            points.append(Point("G", JAX, task.group_size, fastest(rivals).cost.median, None))
    return points


def workers(peaks: Peaks) -> list[Point]:
    """Sweep the workers, up to twice as many as there are processors."""
    task, course, points = Task("tabular", 8, 64), _course("linear", 4, 8), []
    processors = os.cpu_count() or 1
    for count in (n for n in POWERS if n <= 2 * processors):
        one, other = costs_of([simulator(task, workers=count), trainer(course, workers=count)], 3 * SECONDS, REPETITIONS)
        shared = min(count, processors)
        points.append(Point("workers", SIMULATOR, count, one.median, peaks.floor(gradient_work(task)) / shared))
        points.append(Point("workers", TRAINER, count, other.median, peaks.floor(training_work(course)) / shared))
    return points


def replications(peaks: Peaks) -> list[Point]:
    """Sweep the replications, and runs, of one call."""
    task, points = Task("tabular", 8, 16), []
    for size in (10, 10**2, 10**3, 10**4, 10**5, 10**6):

        def run(rounds: int, size: int = size) -> None:
            for _ in range(rounds):
                simulate(task, size)

        contender = Contender(SIMULATOR, run, size * task.batch_responses)
        points.append(_gradients("replications", size, task, contender, peaks))
    for size in (10, 100, 1000, 10**4, 10**5):
        points.append(_training("replications", size, TrainingTask("kl-tabular", 1, 4, gt.Harmonic(5.0, 10), STEPS, size), peaks))
    return points


def _gradients(sweep: str, size: int, task: Task, contender: Contender, peaks: Peaks) -> Point:
    (cost,) = costs_of([contender], SECONDS, REPETITIONS)
    return Point(sweep, SIMULATOR, size, cost.median, peaks.floor(gradient_work(task)))


def _training(sweep: str, size: int, task: TrainingTask, peaks: Peaks) -> Point:
    def run(rounds: int) -> None:
        for _ in range(rounds):
            task.simulate(task.runs)

    (cost,) = costs_of([Contender(TRAINER, run, task.responses)], SECONDS, REPETITIONS)
    return Point(sweep, TRAINER, size, cost.median, peaks.floor(training_work(task)))


SWEEPS: dict[str, Callable[[Peaks], list[Point]]] = {
    "K": lambda peaks: shapes("K", peaks),
    "d": lambda peaks: shapes("d", peaks),
    "B": lambda peaks: shapes("B", peaks),
    "workers": workers,
    "replications": replications,
    "G": group_sizes,
}
"""All sweeps, by what changes."""
