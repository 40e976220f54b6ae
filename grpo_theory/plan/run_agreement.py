"""How well worlds of whole runs agree with a log's gradients: by how alike the prompts' gradients are."""

import numpy as np

from grpo_theory.intervals.rollouts import Groups
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.problem import Problem
from grpo_theory.validation import Array

COARSE = 0.1
"""The worlds are coarse: an alignment that is off by so much is no evidence against one."""


def log_alignment(rollouts: Groups) -> tuple[float, float]:
    """Return the alignment of the prompts' gradients and its standard error, by leaving out one prompt at a time.

    The alignment is the mean product of two prompts' gradients over the mean squared length of one. It is 1 if all are equal,
    and 0 if they have nothing in common. Both means are estimated without bias from a group's responses.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        One batch of at least 3 prompts with at least 4 responses each, with scores or sketches.

    Returns
    -------
    (float, float)
        (0, inf) where the log shows no gradient at all.
    """
    terms = pilot_terms(rollouts)
    gradients, own = terms.gradients, terms.power
    size = len(gradients)
    total, squares = gradients.sum(axis=0), (gradients**2).sum(axis=-1)
    all_pairs = float(total @ total - squares.sum())
    left = all_pairs - 2.0 * (gradients @ total - squares)  # without one prompt, of all others
    powers = (own.sum() - own) / (size - 1.0)
    if not (own.mean() > 0.0 and powers.min() > 0.0):
        return 0.0, np.inf
    without = left / ((size - 1.0) * (size - 2.0)) / powers
    spread = float(np.sqrt((size - 1.0) * np.mean((without - without.mean()) ** 2)))
    return all_pairs / (size * (size - 1.0)) / float(own.mean()), spread


def alignment(problem: Problem) -> float:
    """Return the alignment of a problem's prompts' gradients at its parameter, exact; each prompt counts alike."""
    gradients: Array = problem.at(problem.theta).moments.prompt_gradients
    size, total, squares = len(gradients), gradients.sum(axis=0), (gradients**2).sum()
    return float((total @ total - squares) / (size - 1.0) / squares)


def agreement(found: tuple[float, float], world: float) -> float:
    """Return the likelihood of a log's alignment in a world, over the highest there could be: normal errors."""
    estimate, error = found
    return float(np.exp(-0.5 * ((estimate - world) / np.hypot(error, COARSE)) ** 2))
