"""One arm of the race: its runs at each step of a grid."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.simulate.step_grid import StepGrid
from simulations.kernels import kernel_at
from simulations.normalisation.race_problems import logit_reach, problem_of
from simulations.seeds import child_seed

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
PRINTED_STEPS = "printed steps"
PRINTED = {"plain": 1.0, "divided": 0.5}
"""The paper's steps 1/X^2 and 1/(2 X^2), of one prompt each; X = 1 here."""
EVERY = 4
"""After how many updates success is measured."""
ARMS = {"plain": find("dr_grpo"), "divided": find("grpo"), "broken": kernel_at("turned_mean", 1.0, "descends")}


def rates_of(settings: Mapping[str, Any], arm: str) -> Array:
    """Return the steps that an arm is trained at: those of its contest, and of the broken arm one in the middle."""
    if settings["contest"] == PRINTED_STEPS:
        return np.array([PRINTED["divided" if arm == "broken" else arm]])
    unit = 1.0 / logit_reach(problem_of(settings)) if settings["contest"] == "Adam" else 1.0
    powers = settings["powers"]
    return unit * 2.0 ** np.array([powers[len(powers) // 2]] if arm == "broken" else powers)


def reached(settings: Mapping[str, Any], arm: str, seed: np.random.SeedSequence) -> Array:
    """Return the success of an arm at each of its steps, shape (S, units): the units are draws of the problem, or runs."""
    steps, runs = rates_of(settings, arm), settings["runs"]
    if settings["family"] != "random":
        return success(settings, arm, steps, runs, seed)
    draws = (success(settings, arm, steps, runs, child_seed(seed, draw), draw) for draw in range(settings["draws"]))
    return np.stack([each.mean(axis=1) for each in draws], axis=1)


def success(
    settings: Mapping[str, Any], arm: str, steps: ArrayLike, runs: int, seed: np.random.SeedSequence, draw: int = 0
) -> Array:
    """Return the success of each run at each step (S,), averaged over its updates and the prompts, shape (S, R).

    With the printed steps an update is that of one prompt, and as many of them as a batch has elsewhere count as one.
    """
    problem, contest, batch_size = problem_of(settings, draw), settings["contest"], settings["batch_size"]
    each = batch_size if contest == PRINTED_STEPS else 1
    updates, sizes = settings["updates"] * each, (batch_size // each, settings["group_size"])
    grid = StepGrid.of(problem, ARMS[arm], steps, np.ones(updates), sizes, OPTIMISERS.get(contest, gt.SGD()))
    return grid.objectives(runs, seed, range(EVERY * each, updates + 1, EVERY * each)).mean(axis=-1)
