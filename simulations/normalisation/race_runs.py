"""One arm of the race: its runs at a step, and the search for its best step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.estimation.centring import centre
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.simulate.step_grid import StepGrid
from simulations.normalisation.race_problems import logit_reach, problem_of
from simulations.seeds import child_seed

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
PRINTED_STEPS = "printed steps"
PRINTED = {"plain": 1.0, "divided": 0.5}
"""The paper's steps 1/X^2 and 1/(2 X^2), of one prompt each; X = 1 here."""
EVERY = 4
"""After how many updates success is measured."""
GRIDS: Mapping[str, Array] = {"SGD": 2.0 ** np.arange(0.0, 15.0), "Adam": 2.0 ** np.arange(-4.0, 5.0)}
"""From steps that hardly move anything in a run to steps that put a policy on one answer at once.

SGD's are in units of 1/(mean squared length of the features), Adam's in logits that a step can move.
"""
SINGLY = 2000
"""From this many parameters on, runs are trained one at a time: theta and Adam's moments of several would not fit the cache."""


def out_of_step(batch, advantages):
    """Broken: standardised advantages, each given to the response before its own, as an index that is off by one does."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        first = advantages[b, 0]
        for g in range(group_size):
            own = advantages[b, g + 1] if g + 1 < group_size else first
            advantages[b, g] = own / deviation if deviation > 0.0 else 0.0


ARMS = {
    "plain": find("dr_grpo"),
    "divided": find("grpo"),
    "broken": make_estimator("out_of_step", out_of_step, minimum_group_size=2),
}


def tuned_step(settings: Mapping[str, Any], arm: str, seed: np.random.SeedSequence) -> float:
    """Return an arm's best step, by runs at each step of a grid; all steps see the same draws."""
    contest = settings["contest"]
    unit = 1.0 / logit_reach(problem_of(settings)) if contest == "Adam" else 1.0
    grid: Array = GRIDS[contest] * unit
    reached = success(settings, arm, grid, settings["tuning_runs"], seed).mean(axis=1)
    return best_of_grid(grid, reached, settings["neighbours"])


def best_of_grid(steps: Array, reached: Array, neighbours: int) -> float:
    """Return where success peaks: the vertex of a parabola in log step, fitted to the best step of the grid and its neighbours.

    With one neighbour on each side the vertex follows a peak that is steeper on one side. With two it errs less where runs at one
    step differ by several points. The best step is the highest after smoothing with weights 1/4, 1/2, 1/4; the vertex is not
    farther from it than the next step.
    """
    smooth = reached[:-2] / 4.0 + reached[1:-1] / 2.0 + reached[2:] / 4.0
    best = int(smooth.argmax()) + 1
    near = slice(max(best - neighbours, 0), best + neighbours + 1)
    log_steps = np.log(steps[near] / steps[best])
    bend, slope, _ = np.polyfit(log_steps, reached[near], 2)
    vertex = np.clip(-slope / (2.0 * bend), log_steps[0], log_steps[-1]) if bend < 0.0 else 0.0
    return float(np.clip(steps[best] * np.exp(vertex), steps[best - 1], steps[best + 1]))


def success(settings: Mapping[str, Any], arm: str, steps: ArrayLike, runs: int, seed: np.random.SeedSequence) -> Array:
    """Return the success of each run at each step (S,), averaged over its updates and the prompts, shape (S, R).

    With the printed steps an update is that of one prompt, and as many of them as a batch has elsewhere count as one.
    """
    problem, contest, batch_size = problem_of(settings), settings["contest"], settings["batch_size"]
    each = batch_size if contest == PRINTED_STEPS else 1
    updates, sizes = settings["updates"] * each, (batch_size // each, settings["group_size"])
    grid = StepGrid.of(problem, ARMS[arm], steps, np.ones(updates), sizes, OPTIMISERS.get(contest, gt.SGD()))
    looks = range(EVERY * each, updates + 1, EVERY * each)
    if problem.policy.dimension < SINGLY:
        return grid.objectives(runs, seed, looks).mean(axis=-1)
    return np.concatenate([grid.objectives(1, child_seed(seed, run), looks).mean(axis=-1) for run in range(runs)], axis=1)
