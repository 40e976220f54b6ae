"""Runs of an arm on many draws of a world, at every step of a grid, and the worlds in which they are made."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.simulate.step_grid import StepGrid
from grpo_theory.simulate.training import finite_objectives
from simulations.runs.arms import quietly
from simulations.runs.worlds import World
from simulations.seeds import child_seed

RESPONSES = 64
"""N = BG, those of an update: a group of 64 is then a batch of one prompt."""
STEPS = tuple(2.0**k for k in range(1, 9))
"""The grid of step sizes; with four runs a draw they fill the lanes of a vector."""
RUNS = 4
"""Runs of each draw at each step: more draws make limits narrower than more runs do."""
SMALL = World(prompts=8, answers=16, dimension=32, held_out=0)
"""The least costly world that was found in which the best group size of GRPO grew with the budget, on one draw of it.

So this kind of world was chosen for what it shows. Its draws were not: that draw is none of those that are judged.
"""
WORLDS: Mapping[str, World] = {
    "small": SMALL,
    "visible": SMALL._replace(rarest=0.1),
    "apart": SMALL._replace(dimension=0),
    "rarer": SMALL._replace(prompts=10, rarest=2e-4),
    "roomy": SMALL._replace(dimension=96),
    "more prompts": SMALL._replace(prompts=24, answers=8),
    "competing": SMALL._replace(answers=12, right=2),
    "misled": SMALL._replace(prompts=10, transfer=0.06, misled=0.3),
}
"""By name: the first; without rare right answers; without interference; and those on which the law of the best size is judged."""


def over_draws(
    world: str,
    estimator: str | gt.Estimator,
    group_size: int,
    budgets: Sequence[int],
    counts: tuple[int, int],
    seed: np.random.SeedSequence,
    steps: Sequence[float] = STEPS,
    look: Callable[[gt.Problem, Array], Array] = finite_objectives,
) -> Array:
    """Train by plain ascent with constant steps; return mean success at each budget, shape (steps, draws, budgets).

    Each draw of the world is the mean of its runs. Arms with the same seed share the draws and the random words of their runs.

    Parameters
    ----------
    world : str
    estimator : str or Estimator
    group_size : int
    budgets : sequence of int
        Responses spent.
    counts : tuple of int
        The number of draws, which are the first ones, and that of the runs of each.
    seed : SeedSequence
    steps : sequence of float
    look : callable
        ``look(problem, theta)``: what is wanted of policies theta (R, d) in place of success, shape (R, ...).
    """
    quietly()
    updates, (draws, runs), found = [budget // RESPONSES for budget in budgets], counts, []
    for draw in range(draws):
        problem = WORLDS[world].problem(draw)
        grid = StepGrid.of(problem, find(estimator), steps, np.ones(updates[-1]), (RESPONSES // group_size, group_size))
        found.append(grid.looks(partial(look, problem), runs, child_seed(seed, draw), updates).mean(axis=1))
    return np.stack(found, axis=1)
