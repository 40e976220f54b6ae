"""Training runs on chains: each run by itself, a rollout drawn token by token and some updates on it, again and again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.exact.derivatives import objective, on_chain
from grpo_theory.problem import ChainPoint, Problem
from grpo_theory.simulate.chain.walks import Walks, chances_of, compile_walks, draw_walks, make_walks
from grpo_theory.simulate.chain.weighing import advantages_in, compile_weighing, seen, weighing
from grpo_theory.simulate.draw.sizes import StepSizes
from grpo_theory.simulate.update.iterates import Ball
from grpo_theory.simulate.update.optimiser import Optimiser, moments_kept, settings_of
from grpo_theory.simulate.workers import check_wanted, map_in_order
from grpo_theory.validation import Array, Integers


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
        _ = moments_kept(self.optimiser), self.optimiser.move.dispatcher
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
    """One run on its way."""

    def __init__(self, training: ChainTraining, number: int, start: Array) -> None:
        self.training, self.number, self.count, self.farthest = training, number, 0, 0.0
        # An optimiser moves runs that lie side by side; this one has nobody at its side.
        self._theta, self._start = np.array(start).reshape(-1, 1), start
        self._past = [np.array(start)] * training.sizes.lag
        self._moments = np.zeros((moments_kept(training.optimiser), start.size, 1))
        self._settings = settings_of(training.optimiser)
        self.average = np.zeros(start.size)
        self._ball = None if training.ball is None else training.ball.as_array(training.problem.policy)
        self._walks = make_walks(training.sizes.batch_size, training.sizes.group_size, self._point().chain.horizon)

    @property
    def theta(self) -> Array:
        """The iterate, shape (d,)."""
        return self._theta[:, 0].copy()

    def _point(self) -> ChainPoint:
        return on_chain(self.training.problem, self.theta)

    def _sampler(self) -> ChainPoint:
        """Return the policy that draws: that of so many rollouts ago as rollouts lag."""
        self._past.append(self.theta)
        return on_chain(self.training.problem, self._past.pop(0))

    def advance(self, count: int) -> None:
        """Make updates until there have been so many, rollout by rollout."""
        while self.count < count:
            check_wanted()
            if not np.isfinite(self._theta).all():
                self._theta[:] = self.average[:] = np.nan
                self.count = count
                return
            self._roll_out()

    def _roll_out(self) -> None:
        """Draw a rollout, and make the updates that it serves."""
        training, sizes, sampler = self.training, self.training.sizes, self._sampler()
        batch = sizes.batch_size * sizes.group_size
        first = self.count // sizes.updates * batch
        draw_walks(training.words, self.number, first, batch, chances_of(sampler), self._walks)
        shown = seen(self._walks, sampler, training.estimator.advantage.reads)
        advantages = advantages_in(training.estimator, shown, sizes.batch_size)
        for update in range(sizes.updates):
            own = slice(update * sizes.n_updated, (update + 1) * sizes.n_updated)
            current = self._point() if update or sizes.lag else sampler
            self._update(current, sampler, self._walks.groups(own.start, own.stop), advantages[own])

    def _update(self, current: ChainPoint, sampler: ChainPoint, walks: Walks, advantages: Array) -> None:
        training = self.training
        # A token that was never sampled is on no response, so that its ratio does not matter.
        away = current.state_log_probabilities - sampler.state_log_probabilities
        weigh = weighing(training.estimator, current, np.where(sampler.state_probabilities > 0.0, away, 0.0))
        covectors = weigh.covectors(walks, advantages, len(advantages))
        estimate = current.tangent.vectors(covectors).sum(axis=0) / len(advantages)
        step, self.count = float(training.step_sizes[self.count]), self.count + 1
        gradient = np.ascontiguousarray(estimate.reshape(-1, 1))
        training.optimiser.move(self._theta, gradient, self._moments, self._settings, step, self.count)
        if self._ball is not None:
            gap, radius = self.theta - self._ball[:-1], self._ball[-1]
            distance = np.sqrt((gap**2).sum())
            if distance > radius:
                self._theta[:, 0] = self._ball[:-1] + radius / distance * gap
        self.average += (self.theta - self.average) / self.count
        self.farthest = max(self.farthest, float(np.sqrt(((self.theta - self._start) ** 2).sum())))
