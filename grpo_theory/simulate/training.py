"""The training simulator: stochastic gradient ascent with any registered estimator."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.estimator.kernel import SIGNATURE, first_class
from grpo_theory.estimator.registry import Estimator, find
from grpo_theory.exact.objective import objective
from grpo_theory.exact.outcomes import check_match
from grpo_theory.kl import KL, check_penalty
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.alias import alias_table
from grpo_theory.simulate.ascent import Ascent, ascent
from grpo_theory.simulate.streams import Rng, as_seed_sequence, block_generator
from grpo_theory.simulate.trainer import NO_TRACE, Environment, Trace, compiled_advance
from grpo_theory.theory.stability import warn_if_unstable
from grpo_theory.validation import as_count, as_positive, as_real_array, check_shape

Array = NDArray[np.float64]

BLOCK_RUNS = 64
CHUNK_UNIFORMS = 1 << 17
SIDE_BY_SIDE = 1 << 14  # numbers that the runs that advance together may have: they stay in a second-level cache


@dataclass(frozen=True)
class Ball:
    """The ball onto which iterates are projected.

    Parameters
    ----------
    centre : array_like, shape (d,)
    radius : float
    """

    centre: ArrayLike
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", as_real_array("centre", self.centre, 1))
        as_positive("radius", self.radius)


@dataclass(frozen=True)
class TrainingRuns:
    """R independent training runs.

    Attributes
    ----------
    estimator : str
    checkpoints : ndarray of int, shape (C,)
        Numbers of steps taken.
    objectives : ndarray, shape (R, C)
        Exact J(theta_n) at the checkpoints; NaN from where a run diverged.
    average_objectives : ndarray, shape (R, C)
        Exact J at the average of the iterates so far (Polyak and Ruppert).
    theta, average : ndarray, shape (R, d)
        The last iterates and the averages.
    farthest : ndarray, shape (R,)
        The largest distance of an iterate from the start.
    """

    estimator: str
    checkpoints: NDArray[np.int64]
    objectives: Array
    average_objectives: Array
    theta: Array
    average: Array
    farthest: Array

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Which runs left the finite numbers, shape (R,); they stay in the arrays, as NaN."""
        return np.isnan(np.where(np.isfinite(self.theta), 0.0, np.nan).sum(axis=1))


def simulate_training(
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
    checkpoints: Sequence[int] | None = None,
    ball: Ball | None = None,
    kl: KL | None = None,
) -> TrainingRuns:
    """Simulate theta <- theta + eta_i ghat (Algorithm 1 of arXiv 2603.01162) from theta0, many times.

    Results are bit-identical for any number of workers and any checkpoints; memory does not grow with the number of steps.
    Runs with the same seed see the same uniforms whatever the estimator: differences between estimators are paired.

    Parameters
    ----------
    bandit, policy
        The problem and the policy.
    theta0 : array_like, shape (d,) or (replications, d)
        Where all runs start, or each.
    estimator : str or Estimator
    schedule : Schedule or array_like, shape (steps,)
        The step sizes eta_1, eta_2, ...; see `grpo_theory.schedule`.
    batch_size, group_size : int
        B prompts, G responses each, a step.
    steps, replications : int
        The length n of a run, and the number R of runs.
    rng : int, SeedSequence or Generator, optional
        The seed; fresh entropy if omitted.
    workers : int, optional
        The number of threads; all processors if omitted.
    checkpoints : sequence of int, optional
        Numbers of steps at which the objective is kept; the last step if omitted.
    ball : Ball, optional
        Iterates are projected onto it, the first after the first step: a start outside is kept as it is.
    kl : KL, optional
        A penalty, placed in the reward.

    Returns
    -------
    TrainingRuns

    Warns
    -----
    StabilityWarning
        Before running, if the last step is too large for the curvature at the start (the first run's, if each has its own):
        the spectral radius of I + eta H exceeds 1.
    """
    kept = _checkpoints(checkpoints, as_count("steps", steps))
    sizes = {"batch_size": batch_size, "group_size": group_size, "steps": steps}
    trainer = make_trainer(bandit, policy, estimator, schedule, **sizes, checkpoints=kept, ball=ball, kl=kl)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(policy, theta0, replications)
    warn_if_unstable(bandit, policy, starts[0], trainer.step_sizes, kl)
    seed = as_seed_sequence(rng)
    n_blocks = -(-replications // BLOCK_RUNS)
    with ThreadPoolExecutor(workers) as pool:
        generators = [block_generator(seed, block) for block in range(n_blocks)]
        shares = [starts[i * BLOCK_RUNS : (i + 1) * BLOCK_RUNS] for i in range(n_blocks)]
        blocks = list(pool.map(trainer.run, generators, shares))
    objectives, averages, theta, average, farthest = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return TrainingRuns(find(estimator).name, kept, objectives, averages, theta, average, farthest)


def make_trainer(
    bandit: Bandit,
    policy: Policy,
    estimator: str | Estimator,
    schedule: Schedule | ArrayLike,
    *,
    batch_size: int,
    group_size: int,
    steps: int,
    checkpoints: NDArray[np.int64],
    ball: Ball | None,
    kl: KL | None,
) -> "Trainer":
    """Check what defines a training run, and return what runs a block of them."""
    check_match(bandit, policy)
    check_penalty(kl)
    chosen = find(estimator)
    chosen.check_group_size(as_count("group_size", group_size))
    return Trainer(
        bandit=bandit,
        policy=policy,
        kl=kl,
        kernel=first_class(chosen.kernel, SIGNATURE),
        couples_groups=chosen.couples_groups,
        parameters=chosen.parameter_array,
        advance=compiled_advance(),
        ascent=ascent(policy),
        environment=_environment(bandit, policy, chosen, kl),
        ball=_ball(ball, policy),
        step_sizes=step_sizes(schedule, steps),
        batch_size=as_count("batch_size", batch_size),
        group_size=group_size,
        checkpoints=checkpoints,
    )


def starting_points(policy: Policy, theta0: ArrayLike, replications: int) -> Array:
    """Return one start a run, shape (R, d)."""
    if np.ndim(theta0) < 2:
        start = as_real_array("theta0", theta0, 1)
        check_shape("theta0", start, (policy.dimension,), "(d,), the policy's parameters")
        return np.tile(start, (replications, 1))
    starts = as_real_array("theta0", theta0, 2)
    check_shape("theta0", starts, (replications, policy.dimension), "(replications, d)")
    return starts


def _checkpoints(checkpoints: Sequence[int] | None, steps: int) -> NDArray[np.int64]:
    if np.ndim(checkpoints if checkpoints is not None else []) != 1:
        raise TypeError(f"checkpoints must be a sequence of integers, got {checkpoints!r}")
    kept = [steps] if checkpoints is None else [as_count("checkpoints", point, 0) for point in checkpoints]
    if kept != sorted(set(kept)) or not kept or kept[-1] > steps:
        raise ValueError(f"checkpoints must rise and end at most at steps = {steps}, got {kept}")
    return np.array(kept, dtype=np.int64)


def _ball(ball: Ball | None, policy: Policy) -> Array:
    if ball is None:
        return np.empty(0)
    if not isinstance(ball, Ball):
        raise TypeError(f"ball must be a Ball(centre, radius) or None, got {ball!r}")
    centre = np.asarray(ball.centre)
    check_shape("centre", centre, (policy.dimension,), "(d,), the policy's parameters")
    return np.append(centre, ball.radius)


def _environment(bandit: Bandit, policy: Policy, estimator: Estimator, kl: KL | None) -> Environment:
    shape = (bandit.n_prompts, bandit.n_responses)
    reads_norms = estimator.reads & {"squared_score_norms", "optimal_baselines"}
    log_reference = np.zeros(shape)
    if kl is not None:
        log_reference = np.log(kl.check_reference(shape))
    return Environment(
        *alias_table(bandit.prompt_weights[None]),
        bandit.values.copy(),
        bandit.probabilities.copy(),
        bandit.mean_reward,
        bandit.probabilities @ bandit.values**2,
        log_reference,
        np.array([0.0 if kl is None else kl.strength]),
        np.ascontiguousarray(policy.gram()).copy() if reads_norms else np.empty((0, 0, 0)),
    )


@dataclass(frozen=True)
class Trainer:
    """Everything that a block of runs needs but its generator."""

    bandit: Bandit
    policy: Policy
    kl: KL | None
    kernel: Any
    couples_groups: bool
    parameters: Array
    advance: Any
    ascent: Ascent
    environment: Environment
    ball: Array
    step_sizes: Array
    batch_size: int
    group_size: int
    checkpoints: NDArray[np.int64]

    def run(self, generator: np.random.Generator, theta0: Array, trace: Trace = NO_TRACE) -> tuple[Array, ...]:
        """Train one block of runs, filling the trace; uniforms come in chunks of steps whose size depends on the batch alone."""
        theta = theta0.copy()
        runs = len(theta)
        average = np.zeros_like(theta)
        farthest = np.column_stack([np.zeros(runs), theta])
        objectives = np.empty((runs, len(self.checkpoints)))
        averages = np.empty_like(objectives)
        n, b, g = len(self.step_sizes), self.batch_size, self.group_size
        side = max(1, SIDE_BY_SIDE // max(self.policy.dimension, b * (g + self.policy.n_responses)))
        chunk = max(1, CHUNK_UNIFORMS // (BLOCK_RUNS * b * (1 + g)))
        prompt_uniforms, response_uniforms = np.empty((BLOCK_RUNS, chunk, b)), np.empty((BLOCK_RUNS, chunk, b, g))
        self._keep(0, theta, theta, objectives, averages)
        for start in range(0, n, chunk):
            count = min(chunk, n - start)
            # Whole chunks, and whole blocks, so that no number depends on the length of the run or on the last block's size.
            generator.random(out=prompt_uniforms)
            generator.random(out=response_uniforms)
            stops = sorted({*(int(c) - start for c in self.checkpoints if start < c <= start + count), count})
            done = 0
            for stop in stops:
                for first in range(0, runs, side):
                    share = slice(first, min(first + side, runs))
                    self.advance(
                        self.kernel,
                        *self.ascent,
                        self.parameters,
                        self.environment,
                        self.ball,
                        prompt_uniforms[share],
                        response_uniforms[share],
                        done,
                        stop,
                        self.step_sizes[start : start + chunk],
                        start,
                        b if self.couples_groups else b * (share.stop - first),
                        theta[share],
                        average[share],
                        farthest[share],
                        trace.of(share),
                    )
                done = stop
                self._keep(start + stop, theta, average, objectives, averages)
        return objectives, averages, theta, average, np.sqrt(farthest[:, 0])

    def _keep(self, step: int, theta: Array, average: Array, objectives: Array, averages: Array) -> None:
        """Record the objective if the step is a checkpoint."""
        at = np.flatnonzero(self.checkpoints == step)
        if at.size:
            objectives[:, at[0]] = self._objective(theta)
            averages[:, at[0]] = self._objective(average)

    def _objective(self, theta: Array) -> Array:
        finite = np.isfinite(theta).all(axis=1)
        found = np.full(len(theta), np.nan)
        found[finite] = objective(self.bandit, self.policy, theta[finite], self.kl)
        return found
