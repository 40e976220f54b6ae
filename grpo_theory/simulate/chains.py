"""Gradient estimates and training runs on chains, whose responses are drawn token by token."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.exact.derivatives import objective, on_chain
from grpo_theory.exact.score_moments import token_log_ratios
from grpo_theory.jit import compiled
from grpo_theory.problem import ChainPoint
from grpo_theory.simulate.ascents import Training
from grpo_theory.simulate.gradient_simulation import GradientSimulation
from grpo_theory.simulate.optimisers import follow, make_state
from grpo_theory.simulate.walks import (
    ChainWeights,
    Chances,
    Walks,
    advantages_in,
    chain_weights,
    chances_of,
    draw_walks,
    make_walks,
    seen,
)
from grpo_theory.simulate.workers import check_wanted, map_in_order
from grpo_theory.validation import Array, Integers

DRAW_TOKENS = 1 << 15
"""The tokens that are drawn at once, unless one replication has more."""


@dataclass(frozen=True, eq=False)
class ChainGradients:
    """Estimators on the same draws, and what they are compared with.

    Attributes
    ----------
    current, sampler : ChainPoint
        Where the gradient is estimated, and where responses are drawn.
    weights : list of ChainWeights
        What the tokens of each of E estimators weigh.
    chances : Chances
    sizes : (int, int)
        B prompts, G responses each.
    directions : ndarray, shape (J, d)
    words : ndarray of uint64, shape (3,)
        Of the seed.
    """

    current: ChainPoint
    sampler: ChainPoint
    weights: list[ChainWeights]
    chances: Chances
    sizes: tuple[int, int]
    directions: Array
    words: NDArray[np.unsignedinteger]

    def simulate(self, first_block: int, size: int, replications: int, workers: int, told: str) -> GradientSimulation:
        """Simulate replications, in blocks of a size, from the first block on, with progress told."""
        tokens = self.sizes[0] * self.sizes[1] * self.current.policy.horizon
        at_once = min(size, max(1, DRAW_TOKENS // tokens))  # fixed by their shape, as the last bits of sums depend on it
        names, power = [one.estimator.name for one in self.weights], self.current.moments.known_gradient_squared_norm
        _ = self.current.moments.prompt_gradients, self.sampler.moments  # tabulated before the first thread starts

        def block(number: int) -> GradientSimulation:
            first, left = number * size, min(size, replications - (number - first_block) * size)
            rows = [self.observe(first + done, at_once) for done in range(0, left, at_once)]
            return GradientSimulation.of(names, np.concatenate(rows, axis=2)[:, :, :left].swapaxes(1, 2), power)

        n_blocks = -(-replications // size)
        blocks = range(first_block, first_block + n_blocks)
        return reduce(GradientSimulation.merge, map_in_order(block, blocks, workers, told))

    def observe(self, number: int, replications: int) -> Array:
        """Return the observations of replications from a number on, shape (E, 4 + J, R); see `GradientSimulation.means`."""
        batch_size, group_size = self.sizes
        walks = make_walks(replications * batch_size, group_size, self.current.policy.horizon)
        draw_walks(self.words, number, 0, batch_size * group_size, self.chances, walks)
        batch = seen(walks, self.sampler, {name for one in self.weights for name in one.estimator.advantage.reads})
        rows = []
        # What is beyond double precision is found at the end, and said in the reader's words.
        with np.errstate(over="ignore", invalid="ignore"):
            for own in self.weights:
                logit_gradients = own.logit_gradients(walks, advantages_in(own.estimator, batch, batch_size), batch_size)
                rows.append(self._compare(own.estimator, walks.prompts, logit_gradients))
        return np.stack(rows)

    def _compare(self, estimator: Estimator, prompts: Integers, logit_gradients: Array) -> Array:
        """Return what is observed of groups' logit gradients, shape (4 + J, R)."""
        moments, batch_size = self.current.moments, self.sizes[0]
        vectors = self.current.tangent.vectors(logit_gradients)
        apart = ((vectors - moments.prompt_gradients[prompts]) ** 2).sum(axis=1)
        # ghat = (1/B) sum_b Phi' c_b, with ||ghat - g||^2, ||ghat||^2 and g . ghat (docs/derivations.md, section 37).
        estimates = vectors.reshape(-1, batch_size, vectors.shape[1]).sum(axis=1) / batch_size
        errors = ((estimates - moments.gradient) ** 2).sum(axis=1)
        power, gain = (estimates**2).sum(axis=1), (estimates * moments.gradient).sum(axis=1)
        along = [(estimates * direction).sum(axis=1) for direction in self.directions]
        rows = np.stack([errors, apart.reshape(-1, batch_size).sum(axis=1) / batch_size, power, gain, *along])
        if not np.isfinite(rows).all():
            raise ValueError(
                f"behaviour must be so near to theta that the importance ratios of estimator {estimator.name!r} have squares "
                f"within double precision. Over responses of up to {self.current.policy.horizon} tokens they have not"
            )
        return rows


def chain_gradients(
    current: ChainPoint,
    sampler: ChainPoint,
    estimators: list[Estimator],
    sizes: tuple[int, int],
    directions: Array,
    words: NDArray[np.unsignedinteger],
) -> ChainGradients:
    """Tabulate estimators at a current policy and the one that samples."""
    log_ratios = np.zeros(current.state_probabilities.shape)
    if current is not sampler and not all(one.ratio.constant for one in estimators):
        log_ratios = token_log_ratios(current, sampler)
    weights = [chain_weights(estimator, current, log_ratios) for estimator in estimators]
    return ChainGradients(current, sampler, weights, chances_of(sampler), sizes, directions, words)


def train_on_chain(
    training: Training, words: NDArray[np.unsignedinteger], checkpoints: Integers, number: int, start: Array
) -> tuple[Array, Array, Array, Array, float]:
    """Return J at the checkpoints (C,), of iterates and of averages, and where a run ends; words (3,) are a seed's."""
    run, objectives, averages = ChainRun(training, words, number, start), [], []
    # A run that leaves the finite numbers goes on as NaN, without a warning at each step.
    with np.errstate(all="ignore"):
        for checkpoint in checkpoints:
            run.advance(int(checkpoint))
            objectives.append(float(objective(training.problem, run.theta)))
            averages.append(float(objective(training.problem, run.state.average[0] if checkpoint else run.theta)))
        run.advance(len(training.step_sizes))
    farthest = float(np.sqrt(run.state.farthest[0]))
    return np.array(objectives), np.array(averages), run.theta, run.state.average[0], farthest


class ChainRun:
    """One run on its way, in a `State` of its own."""

    def __init__(self, training: Training, words: NDArray[np.unsignedinteger], number: int, start: Array) -> None:
        self.training, self.words, self.number, self.count = training, words, number, 0
        self.state = make_state(start[None], np.empty(0), training.optimiser.n_moments, 0, lanes=0, keeps=False)
        self._past = [np.array(start)] * training.sizes.lag
        self._ball = np.empty(0) if training.ball is None else training.ball.as_array(training.problem.policy)
        self._walks = make_walks(training.sizes.batch_size, training.sizes.group_size, self._point().policy.horizon)

    @property
    def theta(self) -> Array:
        """The iterate, shape (d,)."""
        return self.state.theta[0].copy()

    def _point(self) -> ChainPoint:
        return on_chain(self.training.problem, self.theta)

    def advance(self, count: int) -> None:
        """Make updates until there have been so many, rollout by rollout."""
        while self.count < count:
            if not np.isfinite(self.state.theta).all():
                self.state.theta[:] = self.state.average[:] = np.nan
                self.count = count
                return
            check_wanted()
            self._roll_out()

    def _roll_out(self) -> None:
        """Draw a rollout, from the policy of so many rollouts ago as they lag, and make the updates that it serves."""
        training, sizes = self.training, self.training.sizes
        self._past.append(self.theta)
        sampler = on_chain(training.problem, self._past.pop(0))
        batch = sizes.batch_size * sizes.group_size
        first = self.count // sizes.updates * batch
        draw_walks(self.words, self.number, first, batch, chances_of(sampler), self._walks)
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
        # w_t = share_t clip(r_t), by l_t = log(pi/pi_0) of its edge (docs/derivations.md, section 16).
        weigh = chain_weights(training.estimator, current, np.where(sampler.state_probabilities > 0.0, away, 0.0))
        logit_gradients = weigh.logit_gradients(walks, advantages, len(advantages))
        state, self.count = self.state, self.count + 1
        # ghat = (1/B') Phi' sum_b c_b, and theta_i = theta_{i-1} + eta_i ghat (Algorithms 1 and 2 of arXiv 2603.01162).
        state.gradient[0] = current.tangent.vectors(logit_gradients.sum(axis=0)[None])[0] / len(advantages)
        step, columns = training.step_sizes[self.count - 1], (state.theta.T, state.gradient.T, state.moments.swapaxes(1, 2))
        compiled(training.optimiser.move)(*columns, training.settings, float(step), self.count)
        follow(state, self._ball, True, self.count, np.empty(1))
