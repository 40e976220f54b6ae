"""Training runs with a martingale as control variate, which takes most of the noise off their final objective.

Step i leads from theta_{i-1} to F_i = theta_{i-1} + eta_i grad J(theta_{i-1}) without noise, and to theta_i = F_i + x_i with it.
The final objective is moved by M = sum_i [p_i + P_i (F_i - tbar_i)] . x_i, with p_i and P_i the first and second derivatives of
the noise-free run's final objective in its iterate tbar_i.  E M = 0 exactly, because the estimate is unbiased and the bracket
is known before x_i is drawn; J(theta_n) - M has the mean of J(theta_n) and a small part of its variance.  What is left is near
sum_i (1/2) x_i' P_i x_i, whose terms are all but independent.  (docs/derivations.md, section 14)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import directional_derivatives
from grpo_theory.theory import TrainingLaw
from simulations.harness.study import Settings


@dataclass(frozen=True)
class Guide:
    """What the noise-free run of n steps says of the noise's effect.

    Attributes
    ----------
    slopes : ndarray, shape (n, d)
        p_1..p_n.
    bend : tuple of ndarray, optional
        The noise-free iterates tbar_1..tbar_n, shape (n, d), and P_1..P_n, shape (n, d, d); without them the control is of
        first order only.
    """

    slopes: Array
    bend: tuple[Array, Array] | None = None


def guide(law: TrainingLaw) -> Guide:
    """Return the guide of a law of training."""
    return Guide(law.slopes, (law.path[1:], law.curvatures))


def controlled_objectives(
    problem: gt.Problem,
    guides: Sequence[Guide],
    steps: Array,
    group_sizes: Sequence[int],
    *,
    budget: int,
    runs: int,
    seed: np.random.SeedSequence,
) -> tuple[Array, Array, Array]:
    """Train with one group size for each step; return J at C checkpoints, and the two parts of M, each (runs, C).

    Parameters
    ----------
    problem : Problem
        Training starts at its theta.
    guides : sequence of Guide
        Of every checkpoint n, in rising order.
    steps : ndarray, shape (n,)
        The step sizes.
    group_sizes : sequence of int, shape (n,)
        G of each step; the batch has budget // G prompts.
    budget, runs : int
    seed : SeedSequence
    """
    theta = np.tile(problem.theta, (runs, 1))
    plain, control = np.empty((runs, len(guides))), np.zeros((2, runs, len(guides)))
    for i, (step, size) in enumerate(zip(steps, group_sizes, strict=True)):
        ahead = [c for c, found in enumerate(guides) if len(found.slopes) > i]
        directions = np.array([guides[c].slopes[i] for c in ahead])
        drift = directional_derivatives(problem, theta, directions)
        bends = {c: guides[c].bend for c in ahead}
        bent = any(bend is not None for bend in bends.values())
        arrived = theta + step * directional_derivatives(problem, theta, np.eye(theta.shape[1])) if bent else theta
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
        control[0][:, ahead] += (moved - theta) @ directions.T - step * drift
        for c, bend in bends.items():
            if bend is not None:
                path, curvatures = bend
                control[1, :, c] += np.einsum("rd,rd->r", (arrived - path[i]) @ curvatures[i], moved - arrived)
        theta = moved
        for c in ahead:
            if len(guides[c].slopes) == i + 1:
                plain[:, c] = gt.objective(problem, theta)
    return plain, control[0], control[1]


def controlled(plain: Array, first: Array, second: Array) -> Array:
    """Return objectives (..., R, C) less the first part of M and a multiple of the second, of the same mean.

    The multiple is the best one, but for each half of the runs that of the other half, which is independent of them: with few
    prompts in a batch the second derivative says little of where the run is, and it falls from 1 to nothing.
    """
    found = plain - first
    halves = np.array_split(np.arange(plain.shape[-2]), 2)
    adjusted = np.empty_like(found)
    for own, other in (halves, halves[::-1]):
        values, control = found[..., other, :], second[..., other, :]
        centred = control - control.mean(axis=-2, keepdims=True)
        spread = (centred**2).sum(axis=-2, keepdims=True)
        share = np.divide((centred * values).sum(axis=-2, keepdims=True), spread, out=np.zeros_like(spread), where=spread > 0.0)
        adjusted[..., own, :] = found[..., own, :] - share * second[..., own, :]
    return adjusted


def objectives_by_group_size(
    problem: gt.Problem, guides: Sequence[Guide], steps: Array, settings: Settings, seed: np.random.SeedSequence, chunk: int
) -> dict[str, list[Any]]:
    """Train with every group size of a cell; return what `controlled_objectives` does, (G, runs, checkpoints) each."""
    found: dict[str, list[Any]] = {"plain": [], "first": [], "second": []}
    for size in settings["group_sizes"]:
        parts = controlled_objectives(
            problem,
            guides,
            steps,
            [size] * len(steps),
            budget=settings["budget"],
            runs=settings["runs"],
            seed=np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, chunk, size)),
        )
        for values, part in zip(found.values(), parts, strict=True):
            values.append(part.tolist())
    return found


def collected(results: Sequence[dict[str, list[Any]]]) -> tuple[Array, Array]:
    """Return the objectives of all chunks, plain and controlled, (G, runs, checkpoints) each."""
    plain, *parts = (np.concatenate([result[name] for result in results], axis=1) for name in ("plain", "first", "second"))
    return plain, controlled(plain, *parts)
