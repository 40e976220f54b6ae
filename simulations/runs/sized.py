"""Runs of an arm at each group size and budget, every one at the step that is best for it, and the worlds in which they go."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.step_search import best_step
from grpo_theory.harness.summary import summary
from simulations.runs.worlds import World
from simulations.seeds import child_seed

RESPONSES = 64
"""N = BG, those of an update: a group of 64 is then a batch of one prompt."""
STEPS = tuple(2.0**k for k in range(1, 9))
"""The grid of step sizes; the best one of each arm was inside it in trial runs."""
TUNING_RUNS = 64
SMALL = World(prompts=8, answers=16, dimension=32, held_out=0)
"""The least costly world that was found in which the best group size of GRPO grows with the budget."""
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


def trained(
    problem: gt.Problem,
    estimator: str | gt.Estimator,
    group_size: int,
    step: float,
    updates: Sequence[int],
    runs: int,
    seed: np.random.SeedSequence,
) -> gt.TrainingRuns:
    """Train by plain ascent with a constant step, and look at some numbers of updates."""
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    return gt.simulate_training(
        problem, problem.theta, estimator, gt.Constant(step), batch_size=RESPONSES // group_size, group_size=group_size,
        steps=updates[-1], replications=runs, checkpoints=list(updates), rng=seed, workers=1,
    )  # fmt: skip


def best_steps(
    problem: gt.Problem, estimator: str | gt.Estimator, group_size: int, budgets: Sequence[int], seed: np.random.SeedSequence
) -> Array:
    """Return the best step for each budget, shape (C,), by runs that judge nothing."""
    updates = [budget // RESPONSES for budget in budgets]
    reached = np.stack(
        [trained(problem, estimator, group_size, step, updates, TUNING_RUNS, seed).objectives.mean(axis=0) for step in STEPS]
    )
    return np.array([best_step(np.array(STEPS), -course) for course in reached.T])


def judged(
    problem: gt.Problem,
    estimator: str | gt.Estimator,
    group_size: int,
    budgets: Sequence[int],
    steps: Array,
    runs: Sequence[int],
    seed: np.random.SeedSequence,
) -> list[dict[str, float]]:
    """Return the mean success at each budget with its own step and number of runs, and its standard error."""
    found = []
    for c, (budget, step, count) in enumerate(zip(budgets, steps, runs, strict=True)):
        ends = trained(problem, estimator, group_size, step, [budget // RESPONSES], count, child_seed(seed, c)).objectives[:, 0]
        found.append({"budget": budget, "group_size": group_size, "step": float(step)} | summary(ends))
    return found
