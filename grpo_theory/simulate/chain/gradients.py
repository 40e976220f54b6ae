"""Gradient estimates on chains: some replications at a time are drawn, weighed and compared with the true gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.exact.score_moments import token_log_ratios
from grpo_theory.problem import ChainPoint
from grpo_theory.simulate.chain.walks import Chances, chances_of, compile_walks, draw_walks, make_walks
from grpo_theory.simulate.chain.weighing import Weighing, advantages_in, compile_weighing, seen, weighing
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.simulate.gradient_simulation import FIRST_DIRECTION, GradientSimulation, pairs_of
from grpo_theory.simulate.observe.moments import Moments, fill_moments, make_moments, merge_moments
from grpo_theory.simulate.workers import check_wanted, map_in_order
from grpo_theory.validation import Array

DRAW_TOKENS = 1 << 15
"""The tokens that are drawn at once, unless one replication has more."""
JOB_TOKENS = 1 << 20
"""The tokens of a thread's job, about."""
SUMMARY = 8 * LANES
"""The replications of which observations are summarised at once."""


@dataclass(frozen=True, eq=False)
class ChainGradients:
    """Estimators on the same draws, and what they are compared with.

    Attributes
    ----------
    current, sampler : ChainPoint
        Where the gradient is estimated, and where responses are drawn.
    estimators : list of Estimator
        E of them.
    sizes : (int, int)
        B prompts, G responses each.
    directions : ndarray, shape (J, d)
    block_replications : int
        The replications of a whole block.
    words : ndarray of uint64, shape (3,)
        Those of the seed, see `stream_words`.
    """

    current: ChainPoint
    sampler: ChainPoint
    estimators: list[Estimator]
    sizes: tuple[int, int]
    directions: Array
    block_replications: int
    words: NDArray[np.uint64]

    @cached_property
    def weighings(self) -> list[Weighing]:
        """What the tokens of each estimator weigh."""
        log_ratios = np.zeros(self.current.state_probabilities.shape)
        if self.current is not self.sampler and not all(one.ratio.constant for one in self.estimators):
            log_ratios = token_log_ratios(self.current, self.sampler)
        return [weighing(estimator, self.current, log_ratios) for estimator in self.estimators]

    @cached_property
    def chances(self) -> Chances:
        """What responses are drawn from."""
        return chances_of(self.sampler)

    def simulate(self, first_block: int, replications: int, workers: int) -> GradientSimulation:
        """Simulate replications of blocks from the first on."""
        compile_walks()
        for estimator in self.estimators:
            compile_weighing(estimator)
        # What all threads read is tabulated before the first starts.
        _ = self.weighings, self.chances, self.current.moments.prompt_gradients, self.sampler.moments
        total, block = self._make_moments(), self._make_moments()
        jobs = self._jobs(first_block * self.block_replications, replications)
        rows, count, done = self._make_rows(), 0, 0
        for observations in map_in_order(self.observe, jobs, workers):
            rows[:, count : count + observations.shape[1]] = observations
            count, done = count + observations.shape[1], done + observations.shape[1]
            ends_block = done % self.block_replications == 0 or done == replications
            if count == SUMMARY or ends_block:
                part = self._make_moments()
                fill_moments.run(rows, count, 0, part)
                merge_moments.run(block, part)
                count = 0
            if ends_block:
                merge_moments.run(total, block)
                block = self._make_moments()
        names = [estimator.name for estimator in self.estimators]
        return GradientSimulation.of_moments(names, total, range(len(names)), self.current.moments.known_gradient_power)

    @property
    def at_once(self) -> int:
        """How many replications are drawn at once: a power of two that divides a block, fixed by their shape."""
        tokens = self.sizes[0] * self.sizes[1] * self.current.chain.horizon
        return min(LANES, 1 << (max(1, DRAW_TOKENS // tokens).bit_length() - 1))

    def _jobs(self, number: int, replications: int) -> Iterator[tuple[int, int]]:
        """Yield the first replication of each job, and how many it has: within one summary of one block."""
        tokens = self.sizes[0] * self.sizes[1] * self.current.chain.horizon
        most = self.at_once * max(1, JOB_TOKENS // (tokens * self.at_once))
        done = 0
        while done < replications:
            within = done % self.block_replications
            left = min(replications - done, self.block_replications - within, SUMMARY - within % SUMMARY, most)
            yield number + done, left
            done += left

    def _make_moments(self) -> Moments:
        n_estimators, n_directions = len(self.estimators), len(self.directions)
        return make_moments(pairs_of(n_estimators, n_directions), n_estimators * (FIRST_DIRECTION + n_directions))

    def _make_rows(self) -> Array:
        return zeros(len(self.estimators) * (FIRST_DIRECTION + len(self.directions)), -(-SUMMARY // WIDTH) * WIDTH)

    def observe(self, number: int, replications: int) -> Array:
        """Return the observations of replications from a number on, shape (E (4 + J), R); see `GradientSimulation.means`."""
        batch_size, group_size = self.sizes
        walks = make_walks(self.at_once * batch_size, group_size, self.current.chain.horizon)
        reads = {name for estimator in self.estimators for name in estimator.advantage.reads}
        parts = []
        for first in range(number, number + replications, self.at_once):
            check_wanted()
            # All are drawn even if fewer are wanted: the last bits of sums may depend on how many there are.
            draw_walks(self.words, first, 0, batch_size * group_size, self.chances, walks)
            batch = seen(walks, self.sampler, reads)
            rows = []
            # What is beyond double precision is found at the end, and said in the reader's words.
            with np.errstate(over="ignore", invalid="ignore"):
                for own in self.weighings:
                    advantages = advantages_in(own.estimator, batch, batch_size)
                    covectors = own.covectors(walks, advantages, batch_size)
                    rows.append(self._compare(own.estimator, walks.prompts, covectors))
            parts.append(np.concatenate(rows))
        return np.concatenate(parts, axis=1)[:, :replications]

    def _compare(self, estimator: Estimator, prompts: NDArray[np.int64], covectors: Array) -> Array:
        """Return what is observed of groups' covectors, shape (4 + J, R)."""
        moments, batch_size = self.current.moments, self.sizes[0]
        vectors = self.current.tangent.vectors(covectors)
        apart = ((vectors - moments.prompt_gradients[prompts]) ** 2).sum(axis=1)
        estimates = vectors.reshape(-1, batch_size, vectors.shape[1]).sum(axis=1) / batch_size
        errors = ((estimates - moments.gradient) ** 2).sum(axis=1)
        power, gain = (estimates**2).sum(axis=1), (estimates * moments.gradient).sum(axis=1)
        along = [(estimates * direction).sum(axis=1) for direction in self.directions]
        rows = np.stack([errors, apart.reshape(-1, batch_size).sum(axis=1) / batch_size, power, gain, *along])
        if not np.isfinite(rows).all():
            raise ValueError(
                f"behaviour must be so near to theta that the importance ratios of estimator {estimator.name!r} have squares "
                f"within double precision. Over responses of up to {self.current.chain.horizon} tokens they have not"
            )
        return rows
