"""Records of training runs: what a user could have kept of one, and many of them simulated."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.estimator.registry import Estimator
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.schedule import Schedule, as_steps
from grpo_theory.simulate.geometry import features
from grpo_theory.simulate.streams import Rng, as_seed_sequence, block_generator
from grpo_theory.simulate.trainer import Trace
from grpo_theory.simulate.training import BLOCK_RUNS, Trainer, make_trainer, starting_points
from grpo_theory.theory.stability import warn_if_unstable
from grpo_theory.validation import as_count, check_shape

Array = NDArray[np.float64]

MINIMUM_STEPS = 20
LARGEST_DIMENSION = 256


@dataclass(frozen=True)
class TrainingRecord:
    """What one training run leaves behind, or many runs along leading axes (...).

    Attributes
    ----------
    step_sizes : ndarray, shape (n,)
        eta_1..eta_n, at least 20 of them.
    path : ndarray, shape (..., n + 1, d)
        The iterates theta_0..theta_n, or d linear functionals of them.  A run that diverged among others stays, as NaN.
    mean_rewards : ndarray, shape (..., n)
        The mean reward of each step's rollouts, less the KL penalty where there is one.
    hessian : ndarray, shape (..., d, d), optional
        An estimate of the objective's Hessian over the last part of the run; `rollout_hessian` makes one.
    tail : float, default 0.5
        The share of the run that is its last part, from which average, noise and Hessian are taken; 1 for all of it.

    Raises
    ------
    ValueError
        If shapes do not fit, there are fewer than 20 steps, or the only run is not finite.
    """

    step_sizes: Array
    path: Array
    mean_rewards: Array
    hessian: Array | None = None
    tail: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        path, rewards = _as_numbers(self.path), _as_numbers(self.mean_rewards)
        if path.ndim < 2 or path.size == 0:
            raise ValueError(f"path must have shape (..., n + 1, d) and not be empty, got {path.shape}")
        n = path.shape[-2] - 1
        if n < MINIMUM_STEPS:
            raise ValueError(f"path must have at least {MINIMUM_STEPS} steps, got {n}")
        check_shape("mean_rewards", rewards, (*path.shape[:-2], n), "(..., n), one a step of the path")
        arrays = {"path": path, "mean_rewards": rewards}
        if self.hessian is not None:
            arrays["hessian"] = _as_numbers(self.hessian)
            check_shape("hessian", arrays["hessian"], (*path.shape[:-2], path.shape[-1], path.shape[-1]), "(..., d, d)")
        if path.ndim == 2:
            for name, array in arrays.items():
                if np.isnan(array).any():
                    where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
                    raise ValueError(f"{name} must be finite, and is not at index {where}: the run diverged")
        _check_tail(self.tail)
        for name, array in arrays.items():
            object.__setattr__(self, name, array)
        object.__setattr__(self, "step_sizes", as_steps("step_sizes", self.step_sizes, n))

    @property
    def steps(self) -> int:
        """The number of steps n."""
        return self.path.shape[-2] - 1

    @property
    def dimension(self) -> int:
        """The number of parameters d."""
        return self.path.shape[-1]

    @property
    def tail_start(self) -> int:
        """The number of steps before the last part."""
        return tail_start(self.steps, self.tail)

    @property
    def average(self) -> Array:
        """The average of the iterates of the last part, shape (..., d)."""
        return self.path[..., self.tail_start + 1 :, :].mean(axis=-2)

    @property
    def noise(self) -> Array:
        """The covariance of the gradient estimates of the last part, shape (..., d, d).

        A gradient estimate is an increment over its step, ghat_i = (theta_i - theta_{i-1}) / eta_i, so nothing else need be kept
        and the batch size does not matter.  At a fixed theta this sample covariance is unbiased for Gamma; along the path it
        also holds the spread of the mean gradient, which is of order 1/n.
        """
        gradients = np.diff(self.path[..., self.tail_start :, :], axis=-2) / self.step_sizes[self.tail_start :, None]
        gradients -= gradients.mean(axis=-2, keepdims=True)
        return np.swapaxes(gradients, -1, -2) @ gradients / (gradients.shape[-2] - 1)


def _as_numbers(array: ArrayLike) -> Array:
    """Return an array of float64 with NaN for what is not finite."""
    array = np.asarray(array, dtype=np.float64)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, np.nan)


def tail_start(steps: int, tail: float) -> int:
    """Return the number of steps before the last part of a run."""
    return steps - max(2, round(_check_tail(tail) * steps))


def _check_tail(tail: float) -> float:
    if not 0.0 < tail <= 1.0:
        raise ValueError(f"tail must lie in (0, 1], got {tail}")
    return tail


def rollout_hessian(rewards: ArrayLike, scores: ArrayLike, strength: float = 0.0) -> Array:
    """Estimate the Hessian of the objective from rollouts, for a policy with linear logits.

    Theorem (docs/derivations.md, section 13).  With C_g the mean of the group's other rewards, the mean of

        (Z_g - C_g - strength) W_g W_g'

    over the responses of a batch is unbiased for the Hessian of E[Z] - strength KL(pi || reference), the penalty being in Z.

    Parameters
    ----------
    rewards : array_like, shape (..., B, G)
        G at least 2.
    scores : array_like, shape (..., B, G, d)
        W = grad log pi at the parameters that drew the responses.
    strength : float, default 0
        Of the KL penalty.

    Returns
    -------
    ndarray, shape (..., d, d)
        Average it over the steps of the last part of a run.
    """
    rewards, scores = np.asarray(rewards, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if rewards.ndim < 2 or rewards.shape[-1] < 2:
        raise ValueError(f"rewards must have shape (..., B, G) with G at least 2, got {rewards.shape}")
    check_shape("scores", scores, (*rewards.shape, *scores.shape[-1:]), "(..., B, G, d)")
    group_size = rewards.shape[-1]
    advantages = (rewards - rewards.mean(axis=-1, keepdims=True)) * group_size / (group_size - 1.0)
    products = np.einsum("...bg,...bgi,...bgj->...ij", advantages - strength, scores, scores)
    return products / (rewards.shape[-2] * group_size)


def simulate_records(
    bandit: Bandit,
    policy: Policy,
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
    kl: KL | None = None,
    tail: float = 0.5,
) -> Iterator[TrainingRecord]:
    """Simulate training runs and yield their records, up to 64 runs at a time: memory does not grow with their number.

    The runs are those of `simulate_training` with the same seed.

    Parameters
    ----------
    bandit, policy, theta0, estimator, schedule, batch_size, group_size, steps, replications, rng, workers, kl
        As for `simulate_training`.
    tail : float, default 0.5
        The share of a run over which its Hessian is estimated.

    Yields
    ------
    TrainingRecord
        Of up to 64 runs, along the first axis.
    """
    dimension = policy.dimension
    if dimension > LARGEST_DIMENSION:
        raise ValueError(f"policy must have at most {LARGEST_DIMENSION} parameters for records, got {dimension}")
    steps = as_count("steps", steps, MINIMUM_STEPS)
    sizes = {"batch_size": batch_size, "group_size": group_size, "steps": steps}
    _check_tail(tail)
    last = np.array([steps], dtype=np.int64)
    trainer = make_trainer(bandit, policy, estimator, schedule, **sizes, checkpoints=last, ball=None, kl=kl)
    starts = starting_points(policy, theta0, as_count("replications", replications))
    warn_if_unstable(bandit, policy, starts[0], trainer.step_sizes, kl)
    blocks = _Blocks(trainer, starts, as_seed_sequence(rng), features(policy), tail)
    return blocks.records(as_count("workers", workers if workers is not None else os.cpu_count() or 1))


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a simulation, each a pure function of its number."""

    trainer: Trainer
    starts: Array
    seed: np.random.SeedSequence
    features: Array
    tail: float

    def records(self, workers: int) -> Iterator[TrainingRecord]:
        """Yield the blocks in order, with as many in flight as there are workers."""
        pending: deque[Future[TrainingRecord]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            for block in range(-(-len(self.starts) // BLOCK_RUNS)):
                pending.append(pool.submit(self.record, block))
                if len(pending) > workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def record(self, block: int) -> TrainingRecord:
        """Train one block."""
        starts = self.starts[block * BLOCK_RUNS : (block + 1) * BLOCK_RUNS]
        runs, dimension = starts.shape
        steps = len(self.trainer.step_sizes)
        trace = Trace(
            np.empty((runs, steps + 1, dimension)),
            np.empty((runs, steps)),
            np.zeros((runs, dimension, dimension)),
            np.array([tail_start(steps, self.tail), steps], dtype=np.int64),
            self.features,
        )
        trace.path[:, 0] = starts
        self.trainer.run(block_generator(self.seed, block), starts, trace)
        return TrainingRecord(self.trainer.step_sizes, trace.path, trace.mean_rewards, trace.hessian, tail=self.tail)
