"""Runs of an arm at each group size and budget, each at its own best step, and the worlds in which they are made."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Rows
from simulations.runs.chosen_steps import choice_variance_of, chosen_steps, trained_with_each
from simulations.runs.tuning import tuned_summary
from simulations.runs.worlds import World
from simulations.seeds import child_seed

RESPONSES = 64
"""N = BG, those of an update: a group of 64 is then a batch of one prompt."""
STEPS = tuple(2.0**k for k in range(1, 9))
"""The grid of step sizes; the best one of each arm was inside it in trial runs."""
TUNING_RUNS = 64
"""A quarter of them for each choice."""
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
    """Return the best step for each budget, shape (FOLDS, C), as shares of runs that judge nothing chose it."""
    updates = [budget // RESPONSES for budget in budgets]
    reached = np.stack([trained(problem, estimator, group_size, step, updates, TUNING_RUNS, seed).objectives for step in STEPS])
    return np.stack([chosen_steps(STEPS, at_budget) for at_budget in np.moveaxis(reached, -1, 0)], axis=1)


class Ends(NamedTuple):
    """Runs of an arm at a budget: what a row says of them, their successes (R,), and whether a step was chosen for them."""

    about: dict[str, float]
    successes: Array
    chosen: bool


def judged(
    problem: gt.Problem,
    estimator: str | gt.Estimator,
    group_size: int,
    budgets: Sequence[int],
    steps: Array,
    runs: Sequence[int],
    seed: np.random.SeedSequence,
) -> list[Ends]:
    """Return the success at each budget with its own steps, of shape (FOLDS, C), and number of runs."""
    at_budgets = []
    for c, (budget, own, count) in enumerate(zip(budgets, steps.T, runs, strict=True)):

        def ends(step: float, share: int, seed: np.random.SeedSequence, budget: int = budget) -> Array:
            return trained(problem, estimator, group_size, step, [budget // RESPONSES], share, seed).objectives[:, 0]

        about = {"budget": budget, "group_size": group_size, "step": float(np.exp(np.log(own).mean()))}
        successes = trained_with_each(own, ends, count, child_seed(seed, c))
        at_budgets.append(Ends(about, successes, chosen=bool(np.ptp(own) > 0.0)))
    return at_budgets


def summaries(arms: Sequence[Ends]) -> Rows:
    """Return the rows of arms, with standard errors that count what choosing the step adds, which is pooled over them."""
    added = choice_variance_of([arm.successes for arm in arms if arm.chosen])
    return [arm.about | tuned_summary(arm.successes, added * arm.chosen) for arm in arms]
