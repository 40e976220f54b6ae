"""Records of training runs, which intervals read: iterates, mean rewards, and an estimate of the Hessian."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.derivatives import warn_if_unstable
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.schedule import Schedule, as_steps, step_sizes
from grpo_theory.simulate.ascents import make_training, starting_points
from grpo_theory.simulate.draws import LANES, Rng, as_seed_sequence, map_in_order
from grpo_theory.simulate.optimisers import SGD
from grpo_theory.simulate.score_hessian import make_record
from grpo_theory.validation import Array, as_count, as_not_negative, as_numbers, cached_array, check_shape, kept, outline, typed

LARGEST_DIMENSION = 256
MINIMUM_STEPS = 20


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """The record of one training run, or of many runs along leading axes (...).

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
        The share of the run that counts as its last part; 1 for all of it. Average, noise and Hessian are taken from that part.

    Raises
    ------
    ValueError
        If shapes do not fit, there are fewer than 20 steps, or the only run is not finite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> record.path.shape, record.mean_rewards.shape, record.hessian.shape
    ((1, 401, 3), (1, 400), (1, 3, 3))
    """

    step_sizes: Array
    path: Array
    mean_rewards: Array
    hessian: Array | None = None
    tail: float = field(default=0.5, kw_only=True)
    __repr__ = outline

    def __post_init__(self) -> None:
        path, rewards = _finite_or_nan("path", self.path), _finite_or_nan("mean_rewards", self.mean_rewards)
        if path.ndim < 2 or path.size == 0:
            raise ValueError(f"path must have shape (..., n + 1, d) and not be empty, got {path.shape}")
        n = path.shape[-2] - 1
        if n < MINIMUM_STEPS:
            raise ValueError(f"path must have at least {MINIMUM_STEPS} steps, got {n}")
        check_shape("mean_rewards", rewards, (*path.shape[:-2], n), "(..., n), one for each step of the path")
        arrays = {"path": path, "mean_rewards": rewards}
        if self.hessian is not None:
            arrays["hessian"] = _finite_or_nan("hessian", self.hessian)
            check_shape("hessian", arrays["hessian"], (*path.shape[:-2], path.shape[-1], path.shape[-1]), "(..., d, d)")
        for name, array in arrays.items():
            if path.ndim == 2 and np.isnan(array).any():
                where = tuple(np.argwhere(np.isnan(array))[0].tolist())
                raise ValueError(f"{name} must be finite, and is not at index {where}: the run diverged")
        tail_start(n, self.tail)
        arrays["step_sizes"] = as_steps("step_sizes", self.step_sizes, n)
        for name, array in arrays.items():
            object.__setattr__(self, name, kept(array))

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

    @cached_array
    def average(self) -> Array:
        """The average of the iterates of the last part, shape (..., d)."""
        return np.asarray(by_component(self.path[..., self.tail_start + 1 :, :]).mean(axis=-1))

    @cached_array
    def noise(self) -> Array:
        """The covariance of the gradient estimates of the last part, shape (..., d, d).

        A gradient estimate is an increment over its step, ``ghat_i = (theta_i - theta_{i-1}) / eta_i``.  So the path and its
        steps are all that need be kept, and the batch size does not matter.  At a fixed theta this sample covariance is unbiased
        for Gamma.  Along the path it also includes the spread of the mean gradient, which is of order 1/n.
        """
        gradients = np.diff(by_component(self.path[..., self.tail_start :, :]), axis=-1) / self.step_sizes[self.tail_start :]
        gradients -= gradients.mean(axis=-1, keepdims=True)
        return gradients @ np.swapaxes(gradients, -1, -2) / (gradients.shape[-1] - 1)


def by_component(path: Array) -> Array:
    """Return the iterates of paths (..., n, d) component by component, shape (..., d, n): numpy sums faster along a last axis."""
    return np.ascontiguousarray(np.swapaxes(path, -1, -2))


def _finite_or_nan(name: str, value: ArrayLike) -> Array:
    """Return an array of float64 with NaN for what is not finite."""
    array = as_numbers(name, value)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, np.nan)


def tail_start(steps: int, tail: float) -> int:
    """Return where the last part of a run begins, which is a share `tail` of it; raise unless that lies in (0, 1]."""
    if not 0.0 < as_not_negative("tail", tail) <= 1.0:
        raise ValueError(f"tail must lie in (0, 1], got {tail}")
    return steps - max(2, round(tail * steps))


def rollout_hessian(rewards: ArrayLike, scores: ArrayLike, strength: float = 0.0) -> Array:
    """Estimate the Hessian of the objective from rollouts, for a policy with linear logits over single tokens.

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

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("kl-linear"), gt.Pilot(batch_size=4, group_size=8)
    >>> rollouts = pilot.sample(problem, 0, replications=3)
    >>> gt.intervals.rollout_hessian(rollouts.rewards, rollouts.scores, problem.kl.strength).shape
    (3, 3, 3)
    """
    rewards, scores = as_numbers("rewards", rewards), as_numbers("scores", scores)
    strength = as_not_negative("strength", strength)
    if rewards.ndim < 2 or rewards.shape[-1] < 2:
        raise ValueError(f"rewards must have shape (..., B, G) with G at least 2, got {rewards.shape}")
    check_shape("scores", scores, (*rewards.shape, *scores.shape[-1:]), "(..., B, G, d)")
    group_size = rewards.shape[-1]
    advantages = (rewards - rewards.mean(axis=-1, keepdims=True)) * group_size / (group_size - 1.0)
    products = np.einsum("...bg,...bgi,...bgj->...ij", advantages - strength, scores, scores)
    return products / (rewards.shape[-2] * group_size)


@typed
def simulate_records(
    problem: Problem,
    theta0: ArrayLike | None = None,
    estimator: str | Estimator = "",
    schedule: Schedule | ArrayLike = (),
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
    if problem.policy.dimension > LARGEST_DIMENSION:
        raise ValueError(f"policy must have at most {LARGEST_DIMENSION} parameters for records, got {problem.policy.dimension}")
    if not problem.policy.is_linear:
        raise ValueError(
            f"policy must have logits that are linear in theta for records, got {problem.policy!r}. Their Hessian is estimated "
            "with fixed features. Use simulate_training for the objectives of its runs"
        )
    if problem.kl is not None and chosen.kl.name != "k1 in reward":
        raise ValueError(f"estimator must have the penalty as 'k1 in reward' for records, got {chosen.kl.name!r}")
    problem.check_climbs_mean("records, whose rewards and Hessian are those of the mean reward")
    sizes = step_sizes(schedule, as_count("steps", steps, MINIMUM_STEPS))
    window = tail_start(steps, tail), steps
    training = make_training(problem, chosen, sizes, (batch_size, group_size), SGD(), keeps=True)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(problem, theta0, replications)
    warn_if_unstable(problem, starts[0], sizes)

    seed = as_seed_sequence(rng)

    def record(block: int) -> TrainingRecord:
        begun = starts[block * LANES : (block + 1) * LANES]
        runs = training.start(seed, block, begun)
        runs.record = make_record(problem, chosen, len(begun), steps, window)
        runs.advance(steps)
        hessian = runs.record.hessian(cast(LogitMap, problem.policy.logit_map))
        return TrainingRecord(sizes, runs.state.path, runs.record.mean_rewards, hessian, tail=tail)

    return map_in_order(record, range(-(-replications // LANES)), workers)
