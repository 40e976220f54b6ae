"""The simulator itself and its floor: the bare cost of the uniforms that it needs."""

from collections.abc import Sequence

import numpy as np

import grpo_theory as gt
from benchmarks.task import ESTIMATOR, SEED, Estimate, Task
from benchmarks.timing import Contender

ROUND_RESPONSES = 1 << 20
BUFFER_RESPONSES = 1 << 17


def simulate(task: Task, rounds: int, *, workers: int = 1, estimators: str | Sequence[str] = ESTIMATOR) -> Estimate:
    """Simulate, and return the first estimator's error."""
    simulation = gt.simulate_gradients(
        task.problem,
        task.problem.theta,
        estimators,
        batch_size=task.batch_size,
        group_size=task.group_size,
        replications=rounds * ROUND_RESPONSES // task.batch_responses,
        rng=SEED,
        workers=workers,
    )
    return Estimate(float(simulation.mse[0]), float(simulation.mse_standard_error[0]))


def simulator(task: Task, *, workers: int = 1, estimators: str | Sequence[str] = ESTIMATOR) -> Contender:
    """Return `simulate_gradients` as a contender; its answer is checked at every run."""

    def run(rounds: int) -> None:
        task.check("simulate_gradients", simulate(task, rounds, workers=workers, estimators=estimators))

    return Contender("simulate_gradients", run, ROUND_RESPONSES)


def bare_uniforms(task: Task) -> Contender:
    """Return the drawing of all prompts' and responses' uniforms, a buffer at a time."""
    size = max(1, BUFFER_RESPONSES // task.batch_responses)
    prompts = np.empty((size, task.batch_size))
    responses = np.empty((size, task.batch_size, task.group_size))
    blocks = ROUND_RESPONSES // responses.size
    generator = np.random.Generator(np.random.SFC64(SEED))

    def run(rounds: int) -> None:
        for _ in range(rounds * blocks):
            generator.random(out=prompts)
            generator.random(out=responses)

    return Contender("uniforms", run, blocks * responses.size)
