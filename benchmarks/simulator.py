"""The simulator itself."""

from collections.abc import Sequence

import grpo_theory as gt
from benchmarks.task import SEED, Estimate, Task
from benchmarks.timing import Contender

ROUND_RESPONSES = 1 << 22


def simulate(task: Task, replications: int, *, workers: int = 1, estimators: Sequence[str] = ()) -> Estimate:
    """Simulate the task's estimator, or several that begin with it, and return its error."""
    simulation = gt.simulate_gradients(
        task.problem,
        task.problem.theta,
        estimators or task.estimator,
        batch_size=task.batch_size,
        group_size=task.group_size,
        replications=replications,
        rng=SEED,
        workers=workers,
    )
    return Estimate(float(simulation.mse[0]), float(simulation.mse_standard_error[0]))


def simulator(task: Task, *, workers: int = 1, estimators: Sequence[str] = ()) -> Contender:
    """Return `simulate_gradients` as a contender; its answer is checked at every run."""

    def run(rounds: int) -> None:
        replications = rounds * ROUND_RESPONSES // task.batch_responses
        task.check("simulate_gradients", simulate(task, replications, workers=workers, estimators=estimators))

    return Contender("simulate_gradients", run, ROUND_RESPONSES)
