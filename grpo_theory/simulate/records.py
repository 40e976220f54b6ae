"""Records of training runs: iterates, mean rewards of rollouts, and an estimate of the Hessian over the tail of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.derivatives import warn_if_unstable
from grpo_theory.problem import Problem
from grpo_theory.samples import TrainingRecord
from grpo_theory.samples.record import MINIMUM_STEPS, check_tail, tail_start
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.ascents import make_training, starting_points
from grpo_theory.simulate.optimisers import SGD
from grpo_theory.simulate.score_hessian import make_record
from grpo_theory.simulate.streams import LANES, Rng, as_seed_sequence
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import as_count, as_numbers, read_only, typed

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
        Of at most 64 runs, along the first axis.

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
    training = make_training(problem, chosen, sizes, (batch_size, group_size), SGD(), keeps=True)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(problem.policy, as_numbers("theta0", theta0), replications)
    warn_if_unstable(problem, starts[0], sizes)

    seed, window = as_seed_sequence(rng), (tail_start(steps, tail), steps)

    def record(block: int) -> TrainingRecord:
        begun = starts[block * LANES : (block + 1) * LANES]
        runs = training.start(seed, block, begun)
        runs.record = make_record(problem, chosen, len(begun), steps, window)
        runs.advance(steps)
        kept = runs.path, runs.record.mean_rewards, runs.record.hessian
        return TrainingRecord(sizes, *map(read_only, kept), tail=tail)

    return map_in_order(record, range(-(-replications // LANES)), workers)
