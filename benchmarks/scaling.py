"""How the cost changes with the group size, with the number of estimators and with that of workers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import grpo_theory as gt
from benchmarks.process import run_python
from benchmarks.simulator import simulator
from benchmarks.table import Row, at_least, at_most
from benchmarks.task import ESTIMATOR, LARGE_GROUP, TASKS, Task
from benchmarks.timing import Contender, costs_of
from benchmarks.training_task import TRAINING_TASKS, TrainingTask, trainer


class Route(NamedTuple):
    """A name for the table, a problem that `find_problem` knows, and an estimator."""

    name: str
    problem: str
    estimator: str = ESTIMATOR


PLAIN = Route("rewards 0 and 1", "graded of 2")
ROUTES = (
    Route("rewards of three values", "graded of 3"),
    Route("a penalty in the reward", "penalised of 2"),
    Route("a penalty, and a kernel that is called", "penalised of 2", "grpo"),
    Route("a kernel that reads score norms", "graded of 2", "optimal_loo"),
)


def route_rows() -> list[Row]:
    """Compare the routes with the fastest, in gradients and in training."""
    rows = []
    for batch_size, group_size in ((4, 8), (8, 16)):

        def simulate(route: Route, sizes: tuple[int, int] = (batch_size, group_size)) -> Contender:
            return simulator(Task(route.problem, *sizes, route.estimator))

        rows += _compared(f"tabular, {batch_size} x {group_size}", simulate)

    def train(route: Route) -> Contender:
        return trainer(TrainingTask(route.problem, 4, 8, gt.Constant(0.05), 200, 2048, route.estimator))

    return rows + _compared("training, tabular, 4 x 8", train)


def _compared(label: str, contend: Callable[[Route], Contender]) -> list[Row]:
    plain, *others = costs_of([contend(route) for route in (PLAIN, *ROUTES)])
    return [
        Row(f"{route.name} / {PLAIN.name}; {label}", cost.median / plain.median, f"{cost} / {plain} ns a response", "lower")
        for route, cost in zip(ROUTES, others, strict=True)
    ]


GROUP_SIZES = (4, 8, 16, 32, 64)
NOISE = 1.05
WORKERS_TARGET = 1.7
ESTIMATORS_TARGET = 2.0
SECONDS = 0.25  # of either contender: two workers have 0.1 s of work and more
REPETITIONS = 9  # of workers' rows: whatever else runs for some seconds takes from two workers, and not from one
SIX_ESTIMATORS = ("rloo", "reinforce", "oracle", "optimal", "dr_grpo", "grpo")


def group_size_row() -> Row:
    """Measure how the cost of a response falls as the groups grow, at a fixed batch size."""
    costs = costs_of([simulator(Task("tabular", 8, group_size)) for group_size in GROUP_SIZES])
    largest = max(later.median / earlier.median for earlier, later in pairwise(costs))
    name = f"cost of a response, largest ratio of neighbours; tabular, B = 8, G = {', '.join(map(str, GROUP_SIZES))}"
    return at_most(name, largest, NOISE, f"{', '.join(f'{cost.median:.3g}' for cost in costs)} ns")


def estimator_rows() -> list[Row]:
    """Compare six estimators on the same draws with one, where groups are large."""
    rows = []
    for task in (task for task in TASKS if task.group_size >= LARGE_GROUP):
        one, six = costs_of([simulator(task), simulator(task, estimators=SIX_ESTIMATORS)])
        name = f"six estimators / one; {task.label}"
        rows.append(at_most(name, six.median / one.median, ESTIMATORS_TARGET, f"{six} / {one} ns a response"))
    return rows


def busy_processors(seconds: float = 0.5) -> float:
    """Return how many processors two busy processes get: below 2 where other work runs, and no two workers can do better."""
    spin = (
        "import time\n"
        f"end = time.perf_counter() + {seconds}\n"
        "start = time.process_time()\n"
        "while time.perf_counter() < end: pass\n"
        "print(time.process_time() - start)"
    )
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(run_python, [["-c", spin]] * 2)) / seconds


def worker_rows() -> list[Row]:
    """Compare two workers with one where the work lasts, and say what the machine could give."""
    name, before = "processors that two busy processes get", busy_processors()
    rows = []
    for task in TASKS:
        for estimators in ((ESTIMATOR,), SIX_ESTIMATORS):
            pair = [simulator(task, workers=n, estimators=estimators) for n in (1, 2)]
            rows.append(_worker_row(f"{task.label}, estimators: {len(estimators)}", pair))
    rows += [_worker_row(task.label, [trainer(task, workers=n) for n in (1, 2)]) for task in TRAINING_TASKS]
    return [Row(f"{name}, before", before), *rows, Row(f"{name}, after", busy_processors())]


def _worker_row(label: str, pair: list[Contender]) -> Row:
    one, two = costs_of(pair, SECONDS, REPETITIONS)
    name = f"one worker / two; {label}"
    return at_least(name, one.median / two.median, WORKERS_TARGET, f"{one} / {two} ns a response")
