"""What a response costs on each route to its advantage, all else alike: other rewards, and kernels that have no table."""

from collections.abc import Callable
from typing import NamedTuple

import grpo_theory as gt
from benchmarks.simulator import simulator
from benchmarks.table import Row
from benchmarks.task import ESTIMATOR, Task
from benchmarks.timing import Contender, costs_of
from benchmarks.training_task import TrainingTask, trainer


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
