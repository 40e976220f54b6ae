"""The training simulator against its rivals, and a study of the size that users want."""

import time
from importlib.util import find_spec

import grpo_theory as gt
from benchmarks import numpy_training
from benchmarks.jax_process import Request, ask, where
from benchmarks.rivalry import NO_JAX, kinds_of, ratio_row
from benchmarks.table import Row, at_most
from benchmarks.timing import Timed, fastest, timed
from benchmarks.training_task import PRECISIONS, TRAINING_TASKS, TrainingTask, trainer

NUMPY_TARGET = 5.0
JAX_TARGETS = {"kl-tabular": 1.2, "linear": 2.5}
STUDY = TrainingTask("kl-tabular", 1, 4, gt.Harmonic(5.0, 10), steps=10**4, runs=10**4)
STUDY_SECONDS = 120.0


def numpy_training_rows() -> list[Row]:
    """Compare one worker with the fastest NumPy rival of each task in each precision."""
    rows: list[Row] = []
    for task in TRAINING_TASKS:
        own, *rivals = timed([trainer(task), *numpy_training.rivals(task)])
        rows += _by_precision("NumPy", "1 thread", task, own, rivals, NUMPY_TARGET)
    return rows


def jax_training_rows(processors: int) -> list[Row]:
    """Compare so many workers with the fastest JAX rival of each task in each precision on as many processors."""
    place, rows = where(processors), []
    if find_spec("jax") is None:
        targets = [(task.label, JAX_TARGETS[task.problem_name]) for task in TRAINING_TASKS]
        return [Row(f"JAX scan / trainer, {place}; {label}", None, NO_JAX, "higher", target) for label, target in targets]
    for task, (own, *rivals) in zip(TRAINING_TASKS, ask("training", Request(processors)), strict=True):
        rows += _by_precision("JAX scan", place, task, own, rivals, JAX_TARGETS[task.problem_name])
    return rows


def study_row() -> Row:
    """Time, once, 10^4 runs of 10^4 steps on two workers."""
    STUDY.simulate(1)
    start = time.perf_counter()
    STUDY.simulate(STUDY.runs, workers=2)
    seconds = time.perf_counter() - start
    detail = f"{1e9 * seconds / (STUDY.runs * STUDY.steps):.0f} ns a step"
    return at_most(f"10^4 runs of 10^4 steps, two workers, seconds; {STUDY.label}", seconds, STUDY_SECONDS, detail)


def _by_precision(rival: str, place: str, task: TrainingTask, own: Timed, rivals: list[Timed], target: float) -> list[Row]:
    rows = []
    for precision in PRECISIONS:
        so_precise = [other for other in rivals if precision in other.name]
        for kind, others in kinds_of(rival, so_precise):
            name = f"{kind} in {precision} precision / trainer, {place}; {task.label}"
            rows.append(ratio_row(name, fastest(others), own.cost, target))
    return rows
