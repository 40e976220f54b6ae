"""Whole runs of an arm: how it trains, and what is measured of the policies it reaches."""

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find, make_estimator
from grpo_theory.estimation.kernel import centre
from grpo_theory.exact import StabilityWarning
from grpo_theory.simulate.training import StepGrid
from grpo_theory.validation import Array
from simulations.runs.worlds import ALL, NetworkWorld, World

OF = 8
"""The k of the worst and of the best of k responses: as many as the smallest number of answers."""
MEASURES = ("success", "worst of 8", "best of 8", "solved", "held out", "harmed")
OPTIMISERS: dict[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}


class Arm(NamedTuple):
    """What trains, where, but for its group size and learning rate.

    Attributes
    ----------
    world, estimator, optimiser : str
    decaying : bool
        Whether the learning rate falls linearly to 0 at the end of each budget; else it is constant.
    responses : int
        N = BG, those of an update.
    """

    world: str
    estimator: str = "grpo"
    optimiser: str = "SGD"
    decaying: bool = False
    responses: int = 256


def dropped_uniform(batch, advantages):
    """A of GRPO times B over the number of groups with a signal: those without are dropped, and the mean is over the others."""
    n_groups, group_size = batch.rewards.shape
    mixed = 0
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        if deviation > 0.0:
            mixed += 1
            for g in range(group_size):
                advantages[b, g] /= deviation + batch.parameters[0]
    for b in range(n_groups):
        for g in range(group_size):
            advantages[b, g] *= n_groups / max(mixed, 1)


@cache
def estimator_of(name, epsilon=1e-4):
    """Return a registered estimator, or "dropped": GRPO with an epsilon, whose groups without signal are left out of the mean."""
    if name != "dropped":
        return find(name)
    return make_estimator(name, dropped_uniform, parameters={"epsilon": epsilon}, minimum_group_size=2, couples_groups=True)


@cache
def world_problems(world: str, draw: int = 0) -> tuple[gt.Problem, gt.Problem | None]:
    """Return a draw's training prompts, and the held-out ones where there are some; no reward is wrong."""
    found = ALL[world]
    shared = not isinstance(found, NetworkWorld) and found.dimension > 0
    return found.problem(draw), found.problem(draw, held_out=True) if shared else None


@cache
def graded(world: str, draw: int = 0) -> gt.Problem:
    """Return the problem that is trained on, whose rewards may be wrong."""
    found = ALL[world]
    return found.graded(draw) if isinstance(found, World) else found.problem(draw)


def measured(world: str, theta: Array, draw: int = 0) -> Array:
    """Return the `MEASURES` of policies theta (..., d) along a last axis, all exact; a run that diverged has the worst."""
    trained, held_out = world_problems(world, draw)
    finite = np.isfinite(theta).all(axis=-1, keepdims=True)
    kept = np.where(finite, theta, 0.0)
    start, reached = success_rates(trained, trained.theta), success_rates(trained, kept)
    found = [reached, reached**OF, 1.0 - (1.0 - reached) ** OF, reached > 0.5, reached, reached < start]
    if held_out is not None:
        found[4] = success_rates(held_out, kept)
    values = np.stack([each.mean(axis=-1) for each in found], axis=-1)
    return np.where(finite, values, np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))


def quietly() -> None:
    """Say nothing of learning rates that are too large, with which grids end; the filter stays, as all threads share it."""
    warnings.filterwarnings("ignore", category=StabilityWarning)


def success_rates(problem: gt.Problem, theta: Array) -> Array:
    """Return the success rate of each prompt, shape (..., M)."""
    policy, rewards = problem.policy, problem.bandit.mean_reward
    if policy.n_logits != policy.n_responses:
        return (np.exp(policy.log_probabilities(theta)) * rewards).sum(axis=-1)
    # A response of one token: its logit is enough, and the logarithm of its probability would only be taken back.
    # Responses come first, because NumPy is slow to reduce a last axis that is short.
    weights = np.ascontiguousarray(np.moveaxis(policy.logits(theta), -1, 0))
    weights = np.exp(weights - weights.max(axis=0))
    return np.einsum("k...m,mk->...m", weights, rewards) / weights.sum(axis=0)


def train(arm, draw, group_size, rates, updates, runs, seed):
    """Train at each rate on one draw of the world; return the `MEASURES` after each number of updates, (rates, runs, updates, 6).

    A learning rate that decays has an end: each budget is a run of its own. Otherwise one run is measured on its way.
    """
    problem, estimator, optimiser = graded(arm.world, draw), estimator_of(arm.estimator), OPTIMISERS[arm.optimiser]
    sizes = arm.responses // group_size, group_size
    found = []
    for course in [[count] for count in updates] if arm.decaying else [list(updates)]:
        left = 1.0 - np.arange(course[-1]) / course[-1] if arm.decaying else np.ones(course[-1])
        grid = StepGrid.of(problem, estimator, rates, left, sizes, optimiser)
        found.append(grid.looks(lambda theta: measured(arm.world, theta, draw), runs, seed, course))
    return np.concatenate(found, axis=2)
