"""Training runs at each step size of a grid, on the same draws: where runs are few, several step sizes side by side."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.problem import Problem
from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence, block_streams
from grpo_theory.simulate.training import finite_objectives
from grpo_theory.simulate.training_blocks import BLOCK_RUNS, Runs, TrainingBlocks, starting_points
from grpo_theory.simulate.update.optimiser import SGD, Optimiser
from grpo_theory.simulate.update.trace import NO_TRACE, Trace, make_trace, trace_from
from grpo_theory.validation import Array, as_real_array


@dataclass(frozen=True, eq=False)
class StepGrid:
    """Runs from a problem's theta at each step size of a grid; those at one are the runs of `simulate_training` with that seed.

    A run is a lane of vectors that have 32: eight runs at one step size leave three quarters of them idle.

    Attributes
    ----------
    blocks : TrainingBlocks
        What the runs have in common; their step sizes are multiplied by each of the grid's.
    rates : ndarray, shape (S,)
        The step sizes of the grid.
    keeps : bool
        Whether the iterates are wanted.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.simulate.step_grid import StepGrid
    >>> problem = gt.gallery.problem("single")
    >>> grid = StepGrid.of(problem, gt.estimators()["rloo"], [0.1, 0.2, 0.4], np.ones(16), (4, 4))
    >>> grid.objectives(8, rng=0, checkpoints=[8, 16]).shape
    (3, 8, 2)
    """

    blocks: TrainingBlocks
    rates: Array
    keeps: bool

    @classmethod
    def of(
        cls,
        problem: Problem,
        estimator: Estimator,
        rates: ArrayLike,
        shape: Array,
        sizes: tuple[int, ...],
        optimiser: Optimiser = SGD(),
        *,
        keeps: bool = False,
    ) -> "StepGrid":
        """Return the grid of some rates (S,): the step sizes of a run are its rate times the shape (n,).

        `sizes` are what `StepSizes` has, in its order.
        """
        sizes = (*sizes, 1) if len(sizes) == 2 else sizes
        steps, rates = np.array(shape, dtype=float), as_real_array("rates", rates, 1)
        many = len(rates) > 1
        blocks = TrainingBlocks.of(problem, estimator, steps, sizes, optimiser=optimiser, keeps=keeps, side_by_side=many)
        return cls(blocks, rates, keeps)

    def objectives(self, replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return J of the iterates after these numbers of updates, shape (S, R, C); NaN from where a run diverged."""
        problem = self.blocks.problem
        return self.looks(lambda theta: finite_objectives(problem, theta), replications, rng, checkpoints)

    def looks(self, look: Callable[[Array], Array], replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return what `look` makes of iterates (R, d) after these numbers of updates, shape (S, R, C, ...)."""

        def follow(runs: Runs) -> Array:
            found = []
            for count in checkpoints:
                runs.advance(int(count))
                found.append(look(runs.theta))
            return np.stack(found, axis=1)

        return self._along(follow, replications, rng)

    def iterates(self, replications: int, rng: Rng) -> Array:
        """Return all iterates, the start first, shape (S, R, n + 1, d)."""

        def follow(runs: Runs) -> Array:
            runs.advance(self.blocks.updates.stop)
            return runs.trace.path

        return self._along(follow, replications, rng)

    def _along(self, follow: Callable[[Runs], Array], replications: int, rng: Rng) -> Array:
        """Return what is found along the runs, (R, ...) of some side by side, by step size: shape (S, R, ...)."""
        problem, seed = self.blocks.problem, as_seed_sequence(rng)
        starts = starting_points(problem.policy, problem.theta, replications)
        found = []
        for block, first in enumerate(range(0, replications, BLOCK_RUNS)):
            own = starts[first : first + BLOCK_RUNS]
            together, parts = BLOCK_RUNS // len(own), []
            for place in range(0, len(self.rates), together):
                rates = self.rates[place : place + together]
                with self._begin(rates, np.tile(own, (len(rates), 1)), seed, block) as runs:
                    along = follow(runs)
                parts.append(along.reshape(len(rates), len(own), *along.shape[1:]))
            found.append(np.concatenate(parts))
        return np.concatenate(found, axis=1)

    def _begin(self, rates: Array, starts: Array, seed: np.random.SeedSequence, block: int) -> AbstractContextManager[Runs]:
        """Begin runs at some rates side by side, on the words of one block; a rate that is alone takes no detour by a factor."""
        largest = rates[np.abs(rates).argmax()] or 1.0
        updates = self.blocks.updates._replace(step_sizes=largest * self.blocks.updates.step_sizes)
        blocks, streams, trace = replace(self.blocks, updates=updates), block_streams(seed, block), self._trace(starts)
        if len(rates) == 1:
            return blocks.start(streams, starts, trace)
        return blocks.start_side_by_side(rates / largest, streams, starts, trace)

    def _trace(self, starts: Array) -> Trace:
        if not self.keeps:
            return NO_TRACE
        steps = self.blocks.updates.stop
        # The window of the Hessian opens after the last rollout, because nobody wants it here.
        return trace_from(starts, make_trace(self.blocks.problem, self.blocks.rules.source, steps, (steps, steps + 1)))
