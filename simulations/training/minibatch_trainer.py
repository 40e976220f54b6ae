"""Runs of an arm whose rollouts serve several updates, with a constant step."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.harness.study import Settings
from grpo_theory.simulate.step_grid import StepGrid

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}


class MinibatchTrainer(NamedTuple):
    """How an arm is trained in a cell."""

    settings: Settings
    estimator: gt.Estimator

    def success(self, problem: gt.Problem, steps: ArrayLike, seed: np.random.SeedSequence) -> Array:
        """Return the exact objective at the end of each run with each of some constant steps (S,), shape (S, R)."""
        return self._grid(problem, steps).objectives(self.settings["runs"], seed, [self._updates])[..., -1]

    def iterates(self, problem: gt.Problem, steps: ArrayLike, seed: np.random.SeedSequence) -> Array:
        """Return all iterates of such runs, (S, R, n + 1, d)."""
        return self._grid(problem, steps, keeps=True).iterates(self.settings["runs"], seed)

    @property
    def _updates(self) -> int:
        return int(self.settings["rollouts"] * self.settings["inner_steps"])

    def _grid(self, problem: gt.Problem, steps: ArrayLike, *, keeps: bool = False) -> StepGrid:
        sizes = tuple(self.settings[name] for name in ("batch_size", "group_size", "inner_steps"))
        optimiser = OPTIMISERS[self.settings["optimiser"]]
        return StepGrid.of(problem, self.estimator, steps, np.ones(self._updates), sizes, optimiser, keeps=keeps)
