"""Runs of an arm whose rollouts serve several updates, with each constant step of a grid."""

from collections.abc import Iterable, Mapping

import numpy as np

import grpo_theory as gt
from grpo_theory.harness.study import Settings
from grpo_theory.simulate.step_grid import StepGrid

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
Drawn = Iterable[tuple[gt.Problem, np.random.SeedSequence]]
"""Problems, each with the seed of its run."""


def step_grid(settings: Settings, problem: gt.Problem, estimator: gt.Estimator, *, keeps: bool = False) -> StepGrid:
    """Return the runs of an arm on a problem, with each of the settings' steps."""
    updates = settings["rollouts"] * settings["inner_steps"]
    sizes = tuple(settings[name] for name in ("batch_size", "group_size", "inner_steps"))
    optimiser = OPTIMISERS[settings["optimiser"]]
    return StepGrid.of(problem, estimator, settings["steps"], np.ones(updates), sizes, optimiser, keeps=keeps)
