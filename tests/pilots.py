"""Pilot batches for the tests of intervals: drawn from written-out outcomes, and enumerated."""

from itertools import product
from math import sqrt

import numpy as np
from enumeration import Case, groups, prompts

import grpo_theory as gt
from grpo_theory import Rollouts
from grpo_theory.intervals import estimate_group_size_law
from grpo_theory.intervals.rollout_intervals import prompt_gradients, prompt_powers


def tiny_case():
    """Two prompts, two responses, three outcomes a prompt: all batches of two prompts can be written out."""
    bandit = gt.Bandit([[0.0, 0.4], [1.0, 0.3]], [0.6, 0.4])
    features = np.array([[[1.0, 0.2], [-0.5, 0.7]], [[0.3, -1.0], [0.9, 0.6]]])
    policy, theta = gt.LinearSoftmax(features), np.array([0.4, -0.3])
    return Case(gt.Problem(bandit, policy, theta=theta), features)


def gentle_case():
    """Four prompts that share two features, no response rare, gradients that differ: estimates are soon near normal."""
    success = [[0.2, 0.5, 0.8], [0.8, 0.3, 0.4], [0.5, 0.9, 0.1], [0.3, 0.4, 0.9]]
    angles = np.array([0.3, 1.4, 3.0, 4.4])
    along = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    across = np.stack([-np.sin(angles), np.cos(angles)], axis=-1)
    offsets, sides = np.array([-1.0, 0.1, 1.1]), np.array([0.3, -0.4, 0.2])
    features = offsets[:, None] * along[:, None] + sides[:, None] * across[:, None]
    policy, theta = gt.LinearSoftmax(features), np.array([0.2, -0.1])
    bandit = gt.Bandit(success, [0.3, 0.3, 0.2, 0.2])
    return Case(gt.Problem(bandit, policy, theta=theta), features)


def all_batches(c, batch_size, group_size):
    """Return all batches of prompts and groups as rollouts (n, B, G), with their probabilities (n,)."""
    choices = [
        (table.rewards[row], table.scores[row], f * weight)
        for f, table in zip(c.bandit.prompt_weights, prompts(c), strict=True)
        for row, weight in zip(*groups(table, group_size), strict=True)
    ]
    index = np.array(list(product(range(len(choices)), repeat=batch_size)))
    rewards, scores, weights = (np.array(column)[index] for column in zip(*choices, strict=True))
    return Rollouts(rewards, scores), weights.prod(axis=1)


def draw(c, replications, batch_size, group_size, rng) -> tuple[Rollouts, np.ndarray]:
    """Draw independent batches; return them and their prompts (n, B)."""
    tables = prompts(c)
    drawn = rng.choice(len(tables), p=c.bandit.prompt_weights, size=(replications, batch_size))
    probabilities = np.stack([t.probabilities for t in tables])
    uniforms = rng.random((replications, batch_size, group_size))
    outcomes = (uniforms[..., None] > np.cumsum(probabilities, axis=1)[drawn][:, :, None, :-1]).sum(axis=-1)
    rewards, scores = (
        np.stack(column)[drawn[..., None], outcomes] for column in zip(*[(t.rewards, t.scores) for t in tables], strict=True)
    )
    return Rollouts(rewards, scores), drawn


def noise(seed, *leading, prompts=6, responses=5, dimension=3) -> Rollouts:
    """Make rollouts of no problem at all: numbers at random, for identities that hold whatever the data."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(*leading, prompts, responses, dimension))
    rewards = scores[..., 0] + rng.exponential(size=scores.shape[:-1]) + rng.normal(size=(*leading, prompts, 1))
    return Rollouts(rewards, scores)


def pick(rollouts, i) -> Rollouts:
    """Return one dataset of many."""
    return Rollouts(rollouts.rewards[i], rollouts.scores[i])


def narrowed(interval, truth, factor=0.9):
    """Return whether the interval, shrunk about its estimate, covers."""
    low, high = (interval.estimate + factor * (limit - interval.estimate) for limit in (interval.low, interval.high))
    return (low <= truth) & (truth <= high)


def deviation(covered, level=0.95) -> float:
    """Return how many binomial standard errors the share of covering intervals lies above the level."""
    return (covered.mean() - level) / sqrt(level * (1.0 - level) / covered.size)


REPLICATIONS = 4000
"""A t interval times 0.9 covers 92.2% and not 95%. At 4000 replications the shares lie 8 and 0 standard errors below. A share
below -4 is found with a probability above 0.999, and from a nominal interval with probability 3e-5."""


def assert_same(found, expected, rtol=1e-12, atol=1e-13):
    """Compare estimates and limits."""
    for name in ("estimate", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=atol)


def components(r):
    """Return (c1, c2, c3), shape (..., 3)."""
    found = estimate_group_size_law(r)
    return np.stack([found.c1, found.c2, found.c3], axis=-1)


def covariance_by_deletion(r):
    """Recompute all estimates with each prompt deleted."""
    size = r.batch_size
    rests = (np.delete(np.arange(size), b) for b in range(size))
    deleted = np.array([components(Rollouts(r.rewards[rest], r.scores[rest])) for rest in rests])
    deviations = deleted - deleted.mean(axis=0)
    return (size - 1) / size * deviations.T @ deviations


def informative(seed, *leading, **shape):
    """Rollouts whose c1 is well above 0: each prompt has a gradient of its own."""
    r = noise(seed, *leading, **shape)
    slopes = np.random.default_rng([seed, 1]).normal(size=(*r.rewards.shape[:-1], 1, r.scores.shape[-1]))
    return Rollouts(r.rewards + (r.scores * slopes).sum(axis=-1), r.scores)


def statistics_of_resamples(r, contrast, seed, resamples):
    """Build every resampled batch of rollouts, and recompute everything from it; sorted."""
    size = r.batch_size
    counts = np.random.default_rng(np.random.SeedSequence(seed)).multinomial(size, np.full(size, 1 / size), size=resamples)
    own = np.array(components(r))
    own[0] = prompt_powers(r)[0].mean() - (prompt_gradients(r).mean(axis=0) ** 2).sum()
    statistics = []
    for count in counts:
        index = np.repeat(np.arange(size), count)
        again = Rollouts(r.rewards[index], r.scores[index])
        error = np.sqrt(contrast @ covariance_by_deletion(again) @ contrast)
        statistics.append(contrast @ (components(again) - own) / error)
    return np.sort(statistics)
