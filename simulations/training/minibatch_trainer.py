"""Runs of an arm whose rollouts serve several updates, with a constant step."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Settings
from grpo_theory.simulate.records import simulate_iterates

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}


class MinibatchTrainer(NamedTuple):
    """How an arm is trained in a cell."""

    settings: Settings
    estimator: gt.Estimator

    def success(self, problem: gt.Problem, step: float, seed: np.random.SeedSequence) -> Array:
        """Return the exact objective at the end of each run with a constant step, (R,).

        A grid of steps ends with some that are too large.  The filter for that stays, because filters are common to all threads.
        """
        warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
        runs = gt.simulate_training(problem, problem.theta, self.estimator, gt.Constant(step), **self._options(seed))
        return runs.objectives[:, -1]

    def iterates(self, problem: gt.Problem, step: float, seed: np.random.SeedSequence) -> Array:
        """Return all iterates of such runs, (R, n + 1, d)."""
        return next(simulate_iterates(problem, problem.theta, self.estimator, gt.Constant(step), **self._options(seed)))

    def _options(self, seed: np.random.SeedSequence) -> dict[str, Any]:
        inner = self.settings["inner_steps"]
        sizes = {name: self.settings[name] for name in ("batch_size", "group_size", "inner_steps")}
        runs = {"steps": self.settings["rollouts"] * inner, "replications": self.settings["runs"]}
        return sizes | runs | {"optimiser": OPTIMISERS[self.settings["optimiser"]], "rng": seed, "workers": 1}
