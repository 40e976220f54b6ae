"""Blocks of replications of a gradient simulation: draw, advantage, covector, observe."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler.lanes import zeros
from grpo_theory.estimation import Estimator
from grpo_theory.simulate.covector.estimator_covectors import EstimatorCovectors, OwnCovectors
from grpo_theory.simulate.draw.batches import Batches, BatchStream, Buffers, make_batches
from grpo_theory.simulate.draw.counting import fill_counts
from grpo_theory.simulate.draw.order import fill_ordered
from grpo_theory.simulate.draw.outcome_law import OutcomeLaw
from grpo_theory.simulate.draw.streams import LANES, begin_streams
from grpo_theory.simulate.gradient_simulation import pairs_of
from grpo_theory.simulate.observe.errors import Geometry, make_error_room
from grpo_theory.simulate.observe.moments import Moments, fill_moments, make_moments, merge_moments, set_of
from grpo_theory.simulate.observe.truth import ErrorRoom
from grpo_theory.simulate.workers import borrowed, check_wanted
from grpo_theory.validation import Array, Integers, cached_array

CALL_NUMBERS = 1 << 18
"""The numbers that the covectors of a call take, unless one tile has more: few enough for a cache, many for a call."""
SUMMARY_TILES = 127
"""The number of tiles whose observations are summarised at once.  It is small enough for a cache.  It is odd, because rows that
lie a power of two apart push one another out of the cache.  It is fixed, so that an estimator's moments are the same alone and
beside others.
"""


@dataclass(frozen=True, eq=False)
class GradientBlocks:
    """Estimators on the same draws, and what they are compared with: everything tabulated that blocks need but their numbers.

    Attributes
    ----------
    covectors : list of EstimatorCovectors
        How those of E estimators are found, whose order is that of the rows of moments.
    law : OutcomeLaw
    geometry : Geometry
    n_directions : int
        The number J of directions.
    batch_size : int
    block_replications : int
        The replications of a block, unless it is the last.
    words : ndarray of uint64, shape (3,)
        Those of the seed, see `stream_words`.
    """

    covectors: list[EstimatorCovectors]
    law: OutcomeLaw
    geometry: Geometry
    n_directions: int
    batch_size: int
    block_replications: int
    words: NDArray[np.uint64]
    _workspaces: list["Workspace"] = field(default_factory=list)

    def compile(self) -> None:
        """Compile everything before the first thread starts."""
        _ = begin_streams.dispatcher
        fill_counts.compile()
        self.geometry.fill_errors.compile()
        for one in self.covectors:
            one.compile()
        if self.in_order:
            fill_ordered.compile()
        fill_moments.compile()
        merge_moments.compile()

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators, in the order of the rows of moments."""
        return [estimator for one in self.covectors for estimator in one.estimators]

    @property
    def in_order(self) -> bool:
        """Whether a kernel asks for the responses in the order drawn."""
        return any(one.in_order for one in self.covectors)

    @property
    def call_tiles(self) -> int:
        """The most tiles of a call."""
        tile = self.batch_size * LANES
        largest = max(one.n_numbers for one in self.covectors) * tile
        return max(1, CALL_NUMBERS // largest)

    @cached_array
    def pairs(self) -> Integers:
        """The pairs of rows of which there are products, see `pairs_of`."""
        return pairs_of(len(self.estimators), self.n_directions)

    def make_moments(self, n_sets: int = 1) -> Moments:
        """Make room for moments of the estimators."""
        return make_moments(self.pairs, len(self.estimators) * (4 + self.n_directions), n_sets)

    def run(self, first: int, replications: int) -> Moments:
        """Simulate replications of blocks from the first on, and return the moments of each block."""
        size = self.block_replications
        moments = self.make_moments(-(-replications // size))
        with borrowed(self._workspaces, lambda: Workspace(self)) as workspace:
            for i in range(len(moments.counts)):
                check_wanted()
                workspace.run(first + i, min(size, replications - i * size), set_of(moments, i))
        return moments


class Workspace:
    """What one thread works in, at one block after another: nothing that is in it before a block begins is read."""

    def __init__(self, blocks: GradientBlocks) -> None:
        self.blocks = blocks
        self.buffers = Buffers()
        self.call_tiles = blocks.call_tiles
        self.streams = [BatchStream(blocks.law) for _ in range(1 + blocks.in_order)]  # as counts, and in the order drawn
        n_tiles = min(SUMMARY_TILES, -(-blocks.block_replications // LANES))
        self.moments = blocks.make_moments()
        observations = zeros(len(blocks.estimators), 4 + blocks.n_directions, n_tiles, LANES)
        self.rows = observations.reshape(-1, n_tiles * LANES)
        lengths = [len(one.estimators) for one in blocks.covectors]
        self.observations = np.split(observations, np.cumsum(lengths)[:-1])

    def run(self, block: int, replications: int, total: Moments) -> None:
        """Simulate the first replications of a block, and add them to moments that are those of none."""
        for stream in self.streams:
            stream.begin(self.blocks.words, block)
        for done in range(0, replications, SUMMARY_TILES * LANES):
            wanted = min(replications - done, SUMMARY_TILES * LANES)
            self._observe_next(wanted)
            fill_moments.run(self.rows, wanted, 0, self.moments)
            merge_moments.run(total, self.moments)

    def _observe_next(self, replications: int) -> None:
        """Draw and observe the next replications of a block."""
        n_tiles = -(-replications // LANES)
        for start in range(0, n_tiles, self.call_tiles):
            batches = self._draw(min(self.call_tiles, n_tiles - start))
            for one, observations in zip(self.blocks.covectors, self.observations, strict=True):
                self._observe(one, batches, start, observations)
                if isinstance(one, OwnCovectors):
                    self._check(one, batches, observations[0, 0, start:], replications - start * LANES)

    def _draw(self, n_tiles: int) -> Batches:
        """Draw the next batches."""
        batches: Batches = self.buffers.made("batches", self._make_batches, n_tiles)
        if batches.ordered is not None:
            self.streams[1].fill_ordered(batches.counts, batches.ordered)
        self.streams[0].fill(batches.counts)
        return batches

    def _make_batches(self, n_tiles: int) -> Batches:
        """Make room for so many tiles."""
        return make_batches(self.blocks.law, n_tiles, self.blocks.batch_size, in_order=self.blocks.in_order)

    def _observe(self, one: EstimatorCovectors, batches: Batches, start: int, observations: Array) -> None:
        """Fill in the observations of estimators, shape (E, 4 + J, S, LANES), from a tile on."""
        fill_errors, truth = self.blocks.geometry
        first = 0
        for covectors in one.fill(batches, self.buffers):
            rows = observations[first : first + len(covectors.columns)]
            shape = covectors.rows.shape, len(covectors.owners), len(covectors.columns)
            room = self.buffers.made("errors", self._make_error_room, *shape)
            fill_errors.run(truth, batches.counts.prompts, covectors, room, start, rows)
            first += len(rows)

    def _make_error_room(self, shape: tuple[int, ...], n_columns: int, n_estimators: int) -> ErrorRoom:
        """Make room for the errors of so many estimators, whose covectors have rows of a shape, and so many columns."""
        blocks = self.blocks
        sizes = n_columns, n_estimators, blocks.batch_size, 4 + blocks.n_directions
        return make_error_room(blocks.geometry.fill_errors, blocks.geometry.truth, shape, *sizes)

    def _check(self, one: OwnCovectors, batches: Batches, errors: Array, wanted: int) -> None:
        """Raise if a kernel has left an advantage that is not finite, in one of the wanted replications of a call."""
        bad = ~np.isfinite(errors[: len(batches.counts.prompts)]).reshape(-1)[:wanted]
        if bad.any():
            tile, lane = divmod(int(np.argmax(bad)), LANES)
            counts, prompt = batches.counts.outcomes[tile, 0, :, lane], batches.counts.prompts[tile, 0, lane]
            raise ValueError(
                f"the kernel of estimator {one.estimators[0].name!r} must fill finite advantages, and does not for a batch "
                f"of {self.blocks.batch_size} x {self.blocks.law.group_size} responses, the first with rewards "
                f"{np.repeat(one.rewards[prompt], counts).tolist()}"
            )
