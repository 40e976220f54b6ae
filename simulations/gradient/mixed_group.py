"""R3: advantages and update given a mixed group, by enumeration.

Expectations given that a group is mixed are sums over all ordered groups of 2 to 4 of a prompt's outcomes. They are compared with
the closed forms, at the prompt and group size where they are farthest off. In the control, groups with right answers only count
as mixed.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import mixed_bias, mixed_share
from simulations.statements import stated

R3, PRINTED, OWN_REWARD, GRADIENT = stated("R3", "R3/printed", "R3/own reward", "R3/gradient")

PROBLEMS = ("two-arms", "tabular")
GROUP_SIZES = (2, 3, 4)


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name}) for name in PROBLEMS]


def conditional(point: gt.Point, prompt: int, size: int, mixed: bool) -> tuple[float, float, Array]:
    """Sum over all ordered groups of a prompt's outcomes, given that some are right, and if `mixed` that some are wrong.

    Returns
    -------
    mean, right : float
        The expected group mean, and that given besides that the first response is right.
    update : ndarray, shape (D,)
        The expected covector of the update with advantages Z - group mean.
    """
    groups = np.array(list(product(range(point.outcome_responses.size), repeat=size)))
    rewards = point.rewards[prompt][groups]
    weights = point.outcome_probabilities[prompt][groups].prod(axis=1)
    kept = rewards.max(axis=1) == 1.0
    if mixed:
        kept &= rewards.min(axis=1) == 0.0
    weights, rewards, groups = weights[kept] / weights[kept].sum(), rewards[kept], groups[kept]
    means = rewards.mean(axis=1)
    covectors = point.covectors[prompt][point.outcome_responses[groups]]
    update = np.einsum("n,ng,ngd->d", weights, rewards - means[:, None], covectors) / size
    first = weights * rewards[:, 0]
    return float(weights @ means), float(first @ means / first.sum()), update


def gaps(point: gt.Point, prompt: int, size: int, mixed: bool) -> tuple[float, float, float]:
    """Return how far the mean, that given a right response, and the update of a prompt's groups are from the closed forms."""
    p = float(point.moments.value[prompt])
    bias = float(mixed_bias(p, size))
    truth = (1.0 - 1.0 / size) * point.moments.gradient_covectors[prompt] / float(mixed_share(p, size))
    mean, right, update = conditional(point, prompt, size, mixed)
    return abs(mean - p - bias), abs(right - p - bias), float(np.abs(update - truth).max() / np.abs(truth).max())


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the farthest of each statement over prompts and group sizes."""
    problem = gt.gallery.problem(settings["problem"])
    point = problem.at(problem.theta)
    where = list(product(range(problem.bandit.n_prompts), GROUP_SIZES))
    right, broken = (np.array([gaps(point, *one, mixed) for one in where]) for mixed in (True, False))
    facts = {"share of mixed groups": min(float(mixed_share(point.moments.value[prompt], size)) for prompt, size in where)}
    for statement, gap, wrong in zip((PRINTED, OWN_REWARD, GRADIENT), right.T, broken.T, strict=True):
        yield statement.compare(problem.name, largest(gap), 0.0, broken=largest(wrong), facts=facts)
