"""The training simulator against its rivals, and a study of the size that users want."""

import time
from importlib.util import find_spec

import grpo_theory as gt
from benchmarks import numpy_training
from benchmarks.process import run_python
from benchmarks.rivalry import NO_JAX, jax_process
from benchmarks.table import Row, at_least, at_most
from benchmarks.timing import nanoseconds_per_response
from benchmarks.training_task import TRAINING_TASKS, TrainingTask, trainer

NUMPY_TARGET = 20.0
JAX_TARGET = 5.0
STUDY = TrainingTask("kl-tabular", 1, 4, gt.Harmonic(5.0, 10), steps=10**4, runs=10**4)
STUDY_SECONDS = 120.0


def numpy_training_rows() -> list[Row]:
    """Compare one worker with the fastest NumPy rival of each task in each precision."""
    rows = []
    for task in TRAINING_TASKS:
        contenders = [trainer(task), *numpy_training.rivals(task)]
        timed = [(contender.name, cost) for contender, cost in zip(contenders, nanoseconds_per_response(contenders), strict=True)]
        rows += _against_the_fastest("NumPy", "1 thread", task, timed, NUMPY_TARGET)
    return rows


def jax_training_rows(cpus: int) -> list[Row]:
    """Compare so many workers with the fastest JAX rival of each task in each precision on as many processors."""
    where, environment = jax_process(cpus)
    if find_spec("jax") is None:
        return [Row(f"JAX / trainer, {where}; {task.label}", NO_JAX, f"at least {JAX_TARGET:g}") for task in TRAINING_TASKS]
    rows = []
    for task, timed in zip(TRAINING_TASKS, run_python(["-m", "benchmarks.jax_training", str(cpus)], environment), strict=True):
        rows += _against_the_fastest("JAX", where, task, timed, JAX_TARGET)
    return rows


def study_row() -> Row:
    """Time, once, 10^4 runs of 10^4 steps on two workers."""
    STUDY.simulate(1)
    start = time.perf_counter()
    STUDY.simulate(STUDY.runs, workers=2)
    seconds = time.perf_counter() - start
    detail = f"{1e9 * seconds / (STUDY.runs * STUDY.steps):.0f} ns a step"
    return at_most(f"10^4 runs of 10^4 steps, two workers, seconds; {STUDY.label}", seconds, STUDY_SECONDS, detail)


def _against_the_fastest(rival: str, where: str, task: TrainingTask, timed: list[tuple[str, float]], target: float) -> list[Row]:
    (_, own), *others = timed
    rows = []
    for precision in ("single", "double"):
        variant, cost = min((other for other in others if precision in other[0]), key=lambda other: other[1])
        name = f"{rival} in {precision} precision / trainer, {where}; {task.label}"
        rows.append(at_least(name, cost / own, target, f"{cost:.1f} / {own:.1f} ns a response; {variant}"))
    return rows
