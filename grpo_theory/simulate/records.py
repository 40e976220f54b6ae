"""Records of training runs: iterates, mean rewards of rollouts, and an estimate of the Hessian over the tail of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.derivatives import warn_if_unstable
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.samples import TrainingRecord
from grpo_theory.samples.record import MINIMUM_STEPS, check_tail, tail_start
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.ascents import Runs, Training, make_training, starting_points
from grpo_theory.simulate.optimisers import SGD
from grpo_theory.simulate.policies import dense_features
from grpo_theory.simulate.streams import LANES, Rng, Streams, as_seed_sequence, block_streams
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import Array, as_count, as_numbers, read_only, typed

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
        runs = RecordedRuns(training, block_streams(seed, block), begun, window)
        runs.advance(steps)
        kept = runs.path, runs.mean_rewards, runs.hessian
        return TrainingRecord(sizes, *map(read_only, kept), tail=tail)

    return map_in_order(record, range(-(-replications // LANES)), workers)


class RecordedRuns(Runs):
    """The runs of a block on their way, of which rewards and Hessians are kept, the latter over a window of the rollouts.

    Attributes
    ----------
    mean_rewards : ndarray, shape (R, n)
        The mean reward of each rollout, the penalty in it.
    hessian : ndarray, shape (R, d, d)
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 13).
    """

    one_by_one = True  # of each something is kept

    def __init__(self, training: Training, streams: Streams, starts: Array, window: tuple[int, int]) -> None:
        super().__init__(training, streams, starts, np.empty(0), LANES)
        paths, dimension = training.problem.policy.paths, starts.shape[1]
        # Each prompt's logits depend on some parameters, the columns (M, S), by features (M, D, S).
        dense = dense_features(cast(LogitMap, training.problem.policy.logit_map)).transpose(2, 0, 1)
        used = (dense != 0.0).any(axis=1)
        self._columns = np.argsort(~used, axis=1, kind="stable")[:, : max(1, int(used.sum(axis=1).max()))]
        self._features = np.take_along_axis(dense, self._columns[:, None, :], axis=2)
        self._paths, self._passed = paths, paths.by_prefix(paths.incidence)
        self._window, self._strength = window, 0.0 if training.problem.kl is None else training.problem.kl.strength
        self.mean_rewards = np.zeros((len(starts), len(training.step_sizes)))
        self.hessian = np.zeros((len(starts), dimension, dimension))

    def sum_advantages(self, sampler: Array) -> None:
        """Add up the advantages of the rollout by response, and keep it."""
        super().sum_advantages(sampler)
        (first, last), sizes, n = self._window, self.training.sizes, self.n
        viewer, counts = self.training.viewer, self.room.counts[..., :n]
        rewards = viewer.rewards(viewer.penalties(self.room, self.policy))[..., :n]
        mean = (counts * rewards).sum(axis=1, keepdims=True) / sizes.group_size
        self.mean_rewards[:, self.count] = mean.mean(axis=(0, 1))
        if not first <= self.count < last:
            return
        # The advantage of a response is its reward less the mean of the group's others, of all if there are none.
        advantages = sizes.group_size / (sizes.group_size - 1.0) * (rewards - mean) if sizes.group_size > 1 else rewards
        shape = len(counts), len(self._passed), -1, n
        leads, of_response = (weight.reshape(shape).sum(axis=2) for weight in (counts * advantages, counts))
        share, runs = 1.0 / ((last - first) * sizes.batch_size * sizes.group_size), np.arange(n)
        for prompts, tokens, lead, count in zip(self.room.prompts[:, :n], self.policy.tokens, leads, of_response, strict=True):
            # sum_g A_g (c_g c_g' - F_g) - strength c_g c_g', with c_g the covector of a response, and F_g the sum of
            # diag(p) - p p' over the prefixes that it passes.
            p, mass = tokens[:, :n].T, (lead - self._strength * count).T
            covectors = self._paths.centre(self._paths.incidence, p[:, None])
            forms = covectors.swapaxes(1, 2) @ (mass[:, :, None] * covectors)
            weighted = (lead.T @ self._passed) * p
            forms += self._paths.siblings * weighted[:, :, None] * p[:, None]
            np.einsum("ndd->nd", forms)[:] -= weighted
            features, columns = self._features[prompts], self._columns[prompts]
            entries = features.swapaxes(1, 2) @ forms @ features
            self.hessian[runs[:, None, None], columns[:, :, None], columns[:, None]] += share * entries
