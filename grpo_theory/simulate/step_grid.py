"""Training runs at each step size of a grid, on the same draws: where runs are few, several step sizes side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.allocation import AllocationRule
from grpo_theory.problem import Problem
from grpo_theory.simulate.allocation import training_of
from grpo_theory.simulate.ascents import Runs, Training, starting_points
from grpo_theory.simulate.optimisers import SGD, Optimiser
from grpo_theory.simulate.streams import LANES, Rng, as_seed_sequence
from grpo_theory.simulate.training import finite_objectives
from grpo_theory.validation import Array, as_real_array


@dataclass(frozen=True, eq=False)
class StepGrid:
    """Runs from a problem's theta at each step size of a grid; those at one are the runs of `simulate_training` with that seed.

    Attributes
    ----------
    training : Training
        What the runs have in common; their step sizes are multiplied by each of the grid's.
    rates : ndarray, shape (S,)
        The step sizes of the grid.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.simulate.step_grid import StepGrid
    >>> problem = gt.gallery.problem("single")
    >>> grid = StepGrid.of(problem, gt.estimators()["rloo"], [0.1, 0.2, 0.4], np.ones(16), (4, 4))
    >>> grid.objectives(8, rng=0, checkpoints=[8, 16]).shape
    (3, 8, 2)
    """

    training: Training
    rates: Array

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
        allocation: str | AllocationRule | None = None,
    ) -> "StepGrid":
        """Return the grid of some rates (S,): the step sizes of a run are its rate times the shape (n,).

        `sizes` are those of `StepSizes`, in its order; `keeps` says whether iterates are wanted.
        """
        steps = np.array(shape, dtype=float)
        training = training_of(problem, estimator, steps, sizes, optimiser, keeps=keeps, allocation=allocation)
        return cls(training, as_real_array("rates", rates, 1))

    def objectives(self, replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return J of the iterates after these numbers of updates, shape (S, R, C); NaN from where a run diverged."""
        return self.looks(lambda theta: finite_objectives(self.training.problem, theta), replications, rng, checkpoints)

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
            runs.advance(len(self.training.step_sizes))
            return runs.path

        return self._along(follow, replications, rng)

    def _along(self, follow: Callable[[Runs], Array], replications: int, rng: Rng) -> Array:
        """Return what is found along the runs, (R, ...) of some side by side, by step size: shape (S, R, ...)."""
        problem, seed, found = self.training.problem, as_seed_sequence(rng), []
        starts = starting_points(problem, None, replications)
        for block, first in enumerate(range(0, replications, LANES)):
            own = starts[first : first + LANES]
            together, parts = LANES // len(own), []
            for place in range(0, len(self.rates), together):
                rates = self.rates[place : place + together]
                runs = self.training.start(seed, block, np.tile(own, (len(rates), 1)), np.repeat(rates, len(own)), len(own))
                along = follow(runs)
                parts.append(along.reshape(len(rates), len(own), *along.shape[1:]))
            found.append(np.concatenate(parts))
        return np.concatenate(found, axis=1)
