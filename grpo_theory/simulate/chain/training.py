"""Training runs on chains: each run by itself, a rollout drawn token by token and some updates on it, again and again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator
from grpo_theory.exact import objective
from grpo_theory.problem import ChainPoint, Problem
from grpo_theory.simulate.chain.walks import Walks, chances_of, compile_walks, draw_walks, make_walks
from grpo_theory.simulate.chain.weighing import advantages_in, compile_weighing, seen, weighing
from grpo_theory.simulate.draw.sizes import StepSizes
from grpo_theory.simulate.update.iterates import Ball, follow_alone, project
from grpo_theory.simulate.update.optimiser import Optimiser
from grpo_theory.simulate.workers import check_wanted, map_in_order


@dataclass(frozen=True, eq=False)
class ChainTraining:
    """What training runs on a chain have in common.

    Attributes
    ----------
    problem : Problem
    estimator : Estimator
    sizes : StepSizes
    step_sizes : ndarray, shape (steps,)
    optimiser : Optimiser
    ball : Ball or None
    checkpoints : ndarray of int, shape (C,)
    words : ndarray of uint64, shape (3,)
        Those of the seed, see `stream_words`.
    """

    problem: Problem
    estimator: Estimator
    sizes: StepSizes
    step_sizes: Array
    optimiser: Optimiser
    ball: Ball | None
    checkpoints: Integers
    words: NDArray[np.uint64]

    def simulate(self, starts: Array, workers: int) -> tuple[Array, ...]:
        """Train from starts (R, d); return what `TrainingRuns` has, from the objectives on."""
        compile_walks()
        compile_weighing(self.estimator)
        _ = self.optimiser.move.dispatcher, project.dispatcher, follow_alone.dispatcher
        parts = list(map_in_order(self.run, enumerate(starts), workers))
        objectives, averages, theta, average, farthest = (np.array(part) for part in zip(*parts, strict=True))
        return objectives, averages, theta, average, farthest

    def run(self, number: int, start: Array) -> tuple[Array, Array, Array, Array, float]:
        """Return J at the checkpoints, of iterates and of averages, and where the run of a number ends."""
        run, objectives, averages = _Run(self, number, start), [], []
        # A run that leaves the finite numbers goes on as NaN, without a warning at each step.
        with np.errstate(all="ignore"):
            for checkpoint in self.checkpoints:
                run.advance(int(checkpoint))
                objectives.append(float(objective(self.problem, run.theta)))
                averages.append(float(objective(self.problem, run.average if checkpoint else run.theta)))
            run.advance(len(self.step_sizes))
        return np.array(objectives), np.array(averages), run.theta, run.average, run.farthest


class _Run:
    """One run on its way, in arrays as the stages of an update want them: those of one run side by side with no other."""

    def __init__(self, training: ChainTraining, number: int, start: Array) -> None:
        self.training, self.number, self.count = training, number, 0
        dimension, sizes = start.size, training.sizes
        self._theta = np.array(start).reshape(dimension, 1)
        self._start, self._average = self._theta.reshape(1, dimension, 1).copy(), np.zeros((1, dimension, 1))
        self._farthest, self._distances = np.zeros((1, 1)), np.zeros(1)
        self._moments = np.zeros((training.optimiser.n_moments, dimension, 1))
        self._ball = None if training.ball is None else training.ball.as_array(training.problem.policy)
        horizon = self._point().chain.horizon
        self._walks = make_walks(sizes.batch_size, sizes.group_size, horizon)

    @property
    def theta(self) -> Array:
        """The iterate, shape (d,)."""
        return self._theta[:, 0].copy()

    @property
    def average(self) -> Array:
        """The average of the iterates so far, shape (d,)."""
        return self._average[0, :, 0].copy()

    @property
    def farthest(self) -> float:
        """The largest distance of an iterate from the start."""
        return float(np.sqrt(self._farthest[0, 0]))

    def _point(self) -> ChainPoint:
        problem = self.training.problem
        return ChainPoint(problem.bandit, problem.policy, problem.kl, problem.log_reference, self.theta)

    def advance(self, count: int) -> None:
        """Make updates until there have been so many, rollout by rollout."""
        while self.count < count:
            check_wanted()
            if not np.isfinite(self._theta).all():
                self._theta[:] = self._average[:] = np.nan
                self.count = count
                return
            self._roll_out()

    def _roll_out(self) -> None:
        """Draw a rollout, and make the updates that it serves."""
        training, sizes, sampler = self.training, self.training.sizes, self._point()
        batch = sizes.batch_size * sizes.group_size
        first = self.count // sizes.updates * batch
        draw_walks(training.words, self.number, first, batch, chances_of(sampler), self._walks)
        shown = seen(self._walks, sampler, training.estimator.advantage.reads)
        advantages = advantages_in(training.estimator, shown, sizes.batch_size)
        for update in range(sizes.updates):
            own = slice(update * sizes.n_updated, (update + 1) * sizes.n_updated)
            current = sampler if update == 0 else self._point()
            self._update(current, sampler, self._walks.groups(own.start, own.stop), advantages[own])

    def _update(self, current: ChainPoint, sampler: ChainPoint, walks: Walks, advantages: Array) -> None:
        training = self.training
        # A token that was never sampled is on no response, so that its ratio does not matter.
        away = current.state_log_probabilities - sampler.state_log_probabilities
        weigh = weighing(training.estimator, current, np.where(sampler.state_probabilities > 0.0, away, 0.0))
        covectors = weigh.covectors(walks, advantages, len(advantages))
        estimate = current.chain.logit_map.vectors(covectors).sum(axis=0) / len(advantages)
        step, self.count = float(training.step_sizes[self.count]), self.count + 1
        gradient, settings = np.ascontiguousarray(estimate.reshape(-1, 1)), training.optimiser.settings
        training.optimiser.move(self._theta, gradient, self._moments, settings, step, self.count)
        if self._ball is not None:
            project(self._theta, self._ball, self._distances)
        follow_alone(self._theta, 0, self.count, self._start, self._average, self._farthest)
