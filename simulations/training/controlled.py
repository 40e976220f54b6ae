"""Training runs with a martingale as control variate, which takes most of the noise off their final objective.

Step i leads from theta_{i-1} to F_i = theta_{i-1} + eta_i grad J(theta_{i-1}) without noise, and to theta_i = F_i + x_i with it.
The final objective is moved by ``M = sum_i [p_i + P_i (F_i - tbar_i)] . x_i``. Here p_i and P_i are the first and second
derivatives of the noise-free run's final objective in its iterate tbar_i. E M = 0 exactly, because the estimate is unbiased and
the bracket is known before x_i is drawn. So J(theta_n) - M has the mean of J(theta_n) and a small part of its variance.

What is left is near ``Q = sum_i (1/2) [x_i' P_i x_i - trace(P_i Gamma_i)]``, with Gamma_i the exact covariance of x_i where the
run is. E Q = 0 as well, and Q is subtracted too. (docs/derivations.md, section 14)
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence.reading import summary
from grpo_theory.exact import directional_derivatives
from grpo_theory.intervals import best_set
from grpo_theory.theory.noise_cost import noise_in_logits
from grpo_theory.validation import Array
from simulations.seeds import child_seed


class Guide(NamedTuple):
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


def guide(law):
    """Return the guide of a law of training."""
    return Guide(law.slopes, (law.path[1:], law.curvatures))


def controlled_objectives(problem, guides, steps, group_sizes, *, budget, runs, seed):
    """Train with one group size per step; return J at C checkpoints (runs, C), and both parts of M and Q (3, runs, C).

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
    plain, control = np.empty((runs, len(guides))), np.zeros((3, runs, len(guides)))
    for i, (step, size) in enumerate(zip(steps, group_sizes, strict=True)):
        ahead = [c for c, one in enumerate(guides) if len(one.slopes) > i]
        directions = np.array([guides[c].slopes[i] for c in ahead])
        drift = directional_derivatives(problem, theta, directions)
        bends = {c: guides[c].bend for c in ahead}
        bent = any(bend is not None for bend in bends.values())
        ascent = directional_derivatives(problem, theta, np.eye(theta.shape[1])) if bent else np.zeros_like(theta)
        covariance = noise_in_logits(problem, problem.policy.logits(theta)) if bent else np.zeros(0)
        sizes = {"batch_size": budget // size, "group_size": size, "steps": 1, "replications": runs, "workers": 1}
        moved = gt.simulate_training(problem, theta, "rloo", [step], **sizes, rng=child_seed(seed, i)).theta
        control[0][:, ahead] += (moved - theta) @ directions.T - step * drift
        for c, bend in bends.items():
            if bend is not None:
                path, curvatures = bend
                arrived = theta + step * ascent
                noise, curvature = moved - arrived, curvatures[i]
                control[1, :, c] += np.einsum("rd,rd->r", (arrived - path[i]) @ curvature, noise)
                expected = step**2 / budget * _trace(problem, curvature, covariance, ascent, size)
                control[2, :, c] += 0.5 * (np.einsum("rd,rd->r", noise @ curvature, noise) - expected)
        theta = moved
        for c in ahead:
            if len(guides[c].slopes) == i + 1:
                plain[:, c] = gt.objective(problem, theta)
    return plain, control


def _trace(problem, curvature, covariance, ascent, size):
    """Return N times the trace of curvature (d, d) Cov(estimate) of every run, from `noise_in_logits` and gradients (runs, d)."""
    features = problem.policy.jacobian()
    local = features @ curvature @ np.swapaxes(features, 1, 2)
    traces = np.einsum("prmcd,mcd->pr", covariance, local, optimize=True)
    traces[0] -= np.einsum("rd,rd->r", ascent @ curvature, ascent)
    return np.array([size, 1.0, 1.0 / (size - 1.0)]) @ traces


def controlled(plain, controls):
    """Return objectives (..., R, C) less the first of K controls (K, ..., R, C) and multiples of the others, of the same mean.

    The multiples are the best ones. For each half of the runs they are those of the other half, which is independent of them.
    With few prompts in a batch the second derivative tells little about where the run is, and the multiples fall from 1 to 0.
    """
    objectives, others = plain - controls[0], np.moveaxis(controls[1:], 0, -1)
    halves = np.array_split(np.arange(plain.shape[-2]), 2)
    adjusted = np.empty_like(objectives)
    for own, other in (halves, halves[::-1]):
        centred = others[..., other, :, :] - others[..., other, :, :].mean(axis=-3, keepdims=True)
        scales = np.sqrt((centred**2).sum(axis=-3, keepdims=True))
        unit = np.divide(centred, scales, out=np.zeros_like(centred), where=scales > 0.0)
        products = np.einsum("...rck,...rcl->...ckl", unit, unit)
        shares = np.einsum(
            "...ckl,...rcl,...rc->...ck", np.linalg.pinv(products, hermitian=True), unit, objectives[..., other, :]
        )
        shares = np.divide(shares, scales[..., 0, :, :], out=np.zeros_like(shares), where=scales[..., 0, :, :] > 0.0)
        adjusted[..., own, :] = objectives[..., own, :] - np.einsum("...rck,...ck->...rc", others[..., own, :, :], shares)
    return adjusted


def objectives_by_group_size(problem, guides, steps, settings, seed):
    """Train with every group size of a cell; return plain objectives (runs, G, C) and their controls (runs, G, 3, C)."""
    sizes = {"budget": settings["budget"], "runs": settings["runs"]}
    trained = [
        controlled_objectives(problem, guides, steps, [size] * len(steps), **sizes, seed=child_seed(seed, size))
        for size in settings["group_sizes"]
    ]
    plain, controls = zip(*trained, strict=True)
    return {"plain": np.stack(plain, axis=1), "controls": np.moveaxis(np.array(controls), (0, 1, 2), (1, 2, 0))}


def collected(found):
    """Return the controlled objectives of all chunks, (G, runs, checkpoints)."""
    return controlled(np.moveaxis(found["plain"], 0, 1), np.moveaxis(found["controls"], (0, 1, 2), (2, 1, 0)))


def loss(objectives, noise_free):
    """Return what noise costs: the objective of the noise-free run less the mean of those of runs (R,), as columns of a row."""
    return summary(objectives) | {"estimate": float(noise_free - objectives.mean())}


def losses(found, sizes, noise_free):
    """Return the loss of each group size, and whether it is among the best ones, by checkpoint and group size.

    `noise_free` are the objectives of the noise-free run, by checkpoint.
    """
    columns = [
        {"checkpoint": n, "group_size": size, "noise_free": free, "in_set": bool(best)} | loss(own, free)
        for at, (n, free) in zip(np.moveaxis(collected(found), 2, 0), noise_free.items(), strict=True)
        for size, own, best in zip(sizes, at, best_set(at.T), strict=True)
    ]
    return pd.DataFrame(columns).set_index(["checkpoint", "group_size"])
