"""Training runs whose final objective is known to the second order of the noise: a martingale as control variate.

The noise moves the final objective to first order by M = sum_i p_i . (theta_i - theta_{i-1} - eta_i grad J(theta_{i-1})), with
p_i the gradient of the noise-free run's final objective in theta_i.  E M = 0 exactly, because the estimate is unbiased and
p_i is fixed in advance; J(theta_n) - M has the mean of J(theta_n) and a small part of its variance.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import directional_derivatives
from simulations.harness.study import Settings


def controlled_objectives(
    problem: gt.Problem,
    slopes: Sequence[Array],
    steps: Array,
    group_sizes: Sequence[int],
    *,
    budget: int,
    runs: int,
    seed: np.random.SeedSequence,
) -> tuple[Array, Array]:
    """Train with one group size for each step; return J at C checkpoints, plain and controlled, each (runs, C).

    Parameters
    ----------
    problem : Problem
        Training starts at its theta.
    slopes : sequence of ndarray, each of shape (steps so far, d)
        p_1..p_n of every checkpoint n, in rising order; see `grpo_theory.theory.noise_free_slopes`.
    steps : ndarray, shape (n,)
        The step sizes.
    group_sizes : sequence of int, shape (n,)
        G of each step; the batch has budget // G prompts.
    budget, runs : int
    seed : SeedSequence
    """
    theta = np.tile(problem.theta, (runs, 1))
    plain, control = np.empty((runs, len(slopes))), np.zeros((runs, len(slopes)))
    for i, (step, size) in enumerate(zip(steps, group_sizes, strict=True)):
        ahead = [c for c, found in enumerate(slopes) if len(found) > i]
        directions = np.array([slopes[c][i] for c in ahead])
        drift = directional_derivatives(problem, theta, directions)
        moved = gt.simulate_training(
            problem,
            theta,
            "rloo",
            [step],
            batch_size=budget // size,
            group_size=size,
            steps=1,
            replications=runs,
            rng=np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, i)),
            workers=1,
        ).theta
        control[:, ahead] += (moved - theta) @ directions.T - step * drift
        theta = moved
        for c in ahead:
            if len(slopes[c]) == i + 1:
                plain[:, c] = gt.objective(problem, theta)
    return plain, plain - control


def objectives_by_group_size(
    problem: gt.Problem, slopes: Sequence[Array], steps: Array, settings: Settings, seed: np.random.SeedSequence, chunk: int
) -> dict[str, list[Any]]:
    """Train with every group size of a cell; return the objectives, plain and controlled, (G, runs, checkpoints) each."""
    found: dict[str, list[Any]] = {"plain": [], "controlled": []}
    for size in settings["group_sizes"]:
        plain, controlled = controlled_objectives(
            problem,
            slopes,
            steps,
            [size] * len(steps),
            budget=settings["budget"],
            runs=settings["runs"],
            seed=np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, chunk, size)),
        )
        found["plain"].append(plain.tolist())
        found["controlled"].append(controlled.tolist())
    return found
