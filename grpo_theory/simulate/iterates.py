"""The iterates of training runs, one after every update: what a study of drifts within rollouts looks at."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator, find
from grpo_theory.problem import Problem
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.draw.generator import block_streams
from grpo_theory.simulate.draw.seeds import Rng, as_seed_sequence
from grpo_theory.simulate.runs import BLOCK_RUNS, Course, starting_points
from grpo_theory.simulate.update.optimiser import SGD, Optimiser
from grpo_theory.simulate.update.trace import compact_features, empty_trace
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import as_count, as_numbers


def simulate_iterates(
    problem: Problem,
    theta0: ArrayLike,
    estimator: str | Estimator,
    schedule: Schedule | ArrayLike,
    *,
    batch_size: int,
    group_size: int,
    steps: int,
    replications: int,
    rng: Rng | None = None,
    workers: int = 1,
    inner_steps: int = 1,
    optimiser: Optimiser = SGD(),
) -> Iterator[Array]:
    """Simulate training runs and yield their iterates, a block of runs at a time.

    The runs are those of `simulate_training` with the same seed.

    Parameters
    ----------
    problem, theta0, estimator, schedule, batch_size, group_size, steps, replications, rng, workers, inner_steps, optimiser
        As for `simulate_training`.

    Yields
    ------
    ndarray, shape (R, steps + 1, d)
        The iterates of at most 128 runs, the start first.
    """
    sizes = step_sizes(schedule, as_count("steps", steps))
    if steps % as_count("inner_steps", inner_steps):
        raise ValueError(f"steps must be divisible by inner_steps = {inner_steps}, got {steps}")
    layout = {"batch_size": batch_size, "group_size": group_size, "inner_steps": inner_steps}
    course = Course.of(problem, find(estimator), sizes, **layout, optimiser=optimiser, ball=None, keeps=True)
    replications = as_count("replications", replications)
    starts = starting_points(problem.policy, as_numbers("theta0", theta0), replications)
    seed, compact = as_seed_sequence(rng), compact_features(problem.policy)

    def iterates(number: int) -> Array:
        """Train one block, a pure function of its number."""
        begun = starts[number * BLOCK_RUNS : (number + 1) * BLOCK_RUNS]
        # The window of the Hessian opens after the last rollout, because nobody wants it here.
        trace = empty_trace(problem.policy, compact, begun, steps, 0)._replace(window=np.array([steps, steps + 1]))
        with course.start(block_streams(seed, number), begun, trace) as runs:
            runs.advance(steps)
        return trace.path

    return map_in_order(iterates, ((number,) for number in range(-(-replications // BLOCK_RUNS))), workers)
