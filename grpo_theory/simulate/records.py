"""Records of training runs, simulated: what a user could have kept of them."""

import os
from collections.abc import Iterator

from numpy.typing import ArrayLike

from grpo_theory.arrays import read_only
from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.stability import warn_if_unstable
from grpo_theory.problem import Problem
from grpo_theory.samples import TrainingRecord
from grpo_theory.samples.record import MINIMUM_STEPS, check_tail, tail_start
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.draw.generator import block_streams
from grpo_theory.simulate.draw.seeds import Rng, as_seed_sequence
from grpo_theory.simulate.runs import BLOCK_RUNS, Course, starting_points
from grpo_theory.simulate.update.optimiser import SGD
from grpo_theory.simulate.update.trace import compact_features, empty_trace
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import as_count, as_numbers, typed

LARGEST_DIMENSION = 256


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
    """
    chosen = find(estimator)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    if problem.policy.dimension > LARGEST_DIMENSION:
        raise ValueError(f"policy must have at most {LARGEST_DIMENSION} parameters for records, got {problem.policy.dimension}")
    if problem.kl is not None and chosen.kl.name != "k1 in reward":
        raise ValueError(f"estimator must have the penalty as 'k1 in reward' for records, got {chosen.kl.name!r}")
    sizes = step_sizes(schedule, as_count("steps", steps, MINIMUM_STEPS))
    check_tail(tail)
    layout = {"batch_size": batch_size, "group_size": group_size, "inner_steps": 1}
    course = Course.of(problem, chosen, sizes, **layout, optimiser=SGD(), ball=None, keeps=True)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(problem.policy, as_numbers("theta0", theta0), replications)
    warn_if_unstable(problem, starts[0], sizes)
    seed = as_seed_sequence(rng)
    compact = compact_features(problem.policy)

    def record(number: int) -> TrainingRecord:
        """Train one block, a pure function of its number."""
        begun = starts[number * BLOCK_RUNS : (number + 1) * BLOCK_RUNS]
        trace = empty_trace(problem.policy, compact, begun, steps, tail_start(steps, tail))
        with course.start(block_streams(seed, number), begun, trace) as runs:
            runs.advance(steps)
        return TrainingRecord(sizes, *map(read_only, (trace.path, trace.mean_rewards, trace.hessian)), tail=tail)

    return map_in_order(record, ((number,) for number in range(-(-replications // BLOCK_RUNS))), workers)
