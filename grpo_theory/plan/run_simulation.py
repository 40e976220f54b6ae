"""Whole runs of a world at several group sizes, each at the learning rate that other runs chose."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.exact import objective
from grpo_theory.problem import Problem
from grpo_theory.simulate.ascents import Training, make_training, starting_points
from grpo_theory.simulate.streams import LANES
from grpo_theory.validation import Array

RESPONSES = 64
"""N, those of an update: a group of 64 is then a batch of one prompt."""
TUNING, JUDGED = 0, 1
"""The blocks of streams of the runs that choose a learning rate, and of those that are judged."""
TUNING_RUNS, JUDGED_RUNS = 32, 128
BLOCKS = 2
"""The simulator's blocks that each of these takes."""
POWERS: Sequence[int] = range(-3, 5)
"""The learning rates are these powers of 3, times the number of prompts: a step is on the mean over prompts."""


class Course(NamedTuple):
    """Mean success of a world's runs, at each group size's own best learning rate.

    Attributes
    ----------
    start : float
        Before the first update.
    success, errors : ndarray, shape (S, C)
        After each number of updates, and standard errors.
    """

    start: float
    success: Array
    errors: Array


@dataclass(frozen=True, eq=False)
class Arm:
    """What trains: a problem from its parameter on, an estimator, and a group size that divides `RESPONSES`."""

    problem: Problem
    estimator: Estimator
    group_size: int

    @cached_property
    def _training(self) -> Training:
        """Its runs, made ready once: most of the time of short runs would go into that, learning rate by learning rate."""
        sizes = RESPONSES // self.group_size, self.group_size
        return make_training(self.problem, self.estimator, np.ones(1), sizes)

    def train(self, rate: float, updates: tuple[int, ...], runs: int, seed: np.random.SeedSequence, block: int) -> Array:
        """Return success after each number of updates, shape (C, R); a run that left the finite numbers has 0."""
        problem, training = self.problem, self._training.with_steps(np.full(updates[-1], rate))
        found = np.zeros((len(updates), runs))
        for first in range(0, runs, LANES):
            own = slice(first, min(first + LANES, runs))
            starts = starting_points(problem.policy, problem.theta, own.stop - first)
            going = training.start(seed, BLOCKS * block + first // LANES, starts)
            for c, count in enumerate(updates):
                going.advance(count)
                theta = going.theta
                finite = np.isfinite(theta).all(axis=-1)
                found[c, first + np.flatnonzero(finite)] = objective(problem, theta[finite])
        return found


def train_sizes(
    problem: Problem,
    estimator: Estimator,
    sizes: tuple[int, ...],
    updates: tuple[int, ...],
    seed: np.random.SeedSequence,
    powers: Sequence[int] = POWERS,
) -> Course:
    """Train by plain ascent at each group size, choose its learning rate for each number of updates, and train anew with it.

    The learning rate is the vertex of a parabola through the best of a grid and its neighbours. So no size wins because its
    best rate happens to be on the grid.

    Parameters
    ----------
    problem : Problem
        Runs start at its parameter.
    estimator : Estimator
    sizes : tuple of int
        S group sizes that divide `RESPONSES`.
    updates : tuple of int
        C numbers, rising.
    seed : SeedSequence
        Arms see the same streams, whatever their group size and learning rate.
    powers : sequence of int
        The learning rates that are tried, as `POWERS`.

    Returns
    -------
    Course
    """
    rates = problem.bandit.n_prompts * 3.0 ** np.array(powers)
    ends = np.empty((len(sizes), len(updates), JUDGED_RUNS))
    for s, size in enumerate(sizes):
        arm = Arm(problem, estimator, size)
        tried = np.array([arm.train(rate, updates, TUNING_RUNS, seed, TUNING).mean(axis=-1) for rate in rates])
        for c, count in enumerate(updates):
            ends[s, c] = arm.train(best_rate(rates, -tried[:, c]), (count,), JUDGED_RUNS, seed, JUDGED)[0]
    start = float(objective(problem, problem.theta))
    return Course(start, ends.mean(axis=-1), ends.std(axis=-1, ddof=1) / np.sqrt(JUDGED_RUNS))


def best_rate(steps: Array, losses: Array) -> float:
    """Return the step of least loss: the vertex of the parabola in log step through the least loss and its neighbours.

    The losses are smoothed with weights 1/4, 1/2, 1/4 before the least is sought, so that no lucky loss wins.  The step lies
    between the first and the last.
    """
    smooth = losses[:-2] / 4.0 + losses[1:-1] / 2.0 + losses[2:] / 4.0
    at = slice(int(smooth.argmin()), int(smooth.argmin()) + 3)
    low, middle, high = np.log(steps[at])
    bend, slope, _ = np.polyfit(np.log(steps[at]) - middle, losses[at], 2)
    vertex = middle - slope / (2.0 * bend) if bend > 0.0 else middle
    return float(np.exp(np.clip(vertex, low, high)))
