"""Training runs of which more is kept than where they end: their records, and their iterates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.derivatives import warn_if_unstable
from grpo_theory.problem import Problem
from grpo_theory.samples import TrainingRecord
from grpo_theory.samples.record import MINIMUM_STEPS, check_tail, tail_start
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence, block_streams
from grpo_theory.simulate.training_blocks import BLOCK_RUNS, TrainingBlocks, starting_points
from grpo_theory.simulate.update.optimiser import SGD, Optimiser
from grpo_theory.simulate.update.trace import Trace, make_trace, trace_from
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import Array, as_count, as_numbers, read_only, typed

LARGEST_DIMENSION = 256
Result = TypeVar("Result")


@typed
def simulate_records(
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
    workers: int | None = None,
    tail: float = 0.5,
) -> Iterator[TrainingRecord]:
    """Simulate training runs and yield their records, a block of runs at a time: memory does not grow with their number.

    The runs are those of `simulate_training` with the same seed.

    Parameters
    ----------
    problem, theta0, estimator, schedule, batch_size, group_size, steps, replications, rng, workers
        As for `simulate_training`; a penalty must be in the reward, as it is by default.
    tail : float, default 0.5
        The share of a run over which its Hessian is estimated.

    Yields
    ------
    TrainingRecord
        Of at most 128 runs, along the first axis.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 40, "replications": 2}
    >>> record = next(gt.simulate_records(problem, problem.theta, "rloo", gt.Constant(0.1), **sizes, rng=0))
    >>> record.path.shape, record.mean_rewards.shape
    ((2, 41, 2), (2, 40))
    """
    chosen = find(estimator)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    if problem.policy.dimension > LARGEST_DIMENSION:
        raise ValueError(f"policy must have at most {LARGEST_DIMENSION} parameters for records, got {problem.policy.dimension}")
    if not problem.policy.is_linear:
        raise ValueError(
            f"policy must have logits that are linear in theta for records, got {problem.policy!r}. Their Hessian is estimated "
            "with fixed features. Use simulate_training for the objectives of its runs"
        )
    if problem.kl is not None and chosen.kl.name != "k1 in reward":
        raise ValueError(f"estimator must have the penalty as 'k1 in reward' for records, got {chosen.kl.name!r}")
    sizes = step_sizes(schedule, as_count("steps", steps, MINIMUM_STEPS))
    check_tail(tail)
    blocks = TrainingBlocks.of(problem, chosen, sizes, (batch_size, group_size, 1), optimiser=SGD(), keeps=True)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(problem.policy, as_numbers("theta0", theta0), replications)
    warn_if_unstable(problem, starts[0], sizes)

    def record(trace: Trace) -> TrainingRecord:
        return TrainingRecord(sizes, *map(read_only, (trace.path, trace.mean_rewards, trace.hessian)), tail=tail)

    return _traced(blocks, starts, (tail_start(steps, tail), steps), as_seed_sequence(rng), workers, record)


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
    lag: int = 0,
    optimiser: Optimiser = SGD(),
) -> Iterator[Array]:
    """Simulate training runs and yield their iterates, a block of runs at a time.

    The runs are those of `simulate_training` with the same seed.

    Parameters
    ----------
    problem, theta0, estimator, schedule, batch_size, group_size, steps, replications, rng, workers, inner_steps, lag, optimiser
        As for `simulate_training`.

    Yields
    ------
    ndarray, shape (R, steps + 1, d)
        The iterates of at most 128 runs, the start first.
    """
    step_numbers = step_sizes(schedule, as_count("steps", steps))
    if steps % as_count("inner_steps", inner_steps):
        raise ValueError(f"steps must be divisible by inner_steps = {inner_steps}, got {steps}")
    sizes = batch_size, group_size, inner_steps, as_count("lag", lag, 0)
    blocks = TrainingBlocks.of(problem, find(estimator), step_numbers, sizes, optimiser=optimiser, keeps=True)
    starts = starting_points(problem.policy, as_numbers("theta0", theta0), as_count("replications", replications))
    # The window of the Hessian opens after the last rollout, because nobody wants it here.
    return _traced(blocks, starts, (steps, steps + 1), as_seed_sequence(rng), workers, lambda trace: trace.path)


def _traced(
    blocks: TrainingBlocks,
    starts: Array,
    window: tuple[int, int],
    seed: np.random.SeedSequence,
    workers: int,
    result: Callable[[Trace], Result],
) -> Iterator[Result]:
    """Yield what is made of the trace of each block of runs, whose Hessians are estimated over a window of the rollouts."""
    steps = blocks.updates.stop
    shared = make_trace(blocks.problem, blocks.rules.source, steps, window)

    def run(number: int) -> Result:
        """Train one block, a pure function of its number."""
        begun = starts[number * BLOCK_RUNS : (number + 1) * BLOCK_RUNS]
        trace = trace_from(begun, shared)
        with blocks.start(block_streams(seed, number), begun, trace) as runs:
            runs.advance(steps)
        return result(trace)

    return map_in_order(run, ((number,) for number in range(-(-len(starts) // BLOCK_RUNS))), workers)
