"""Hessians and covariances in the logits, at many logits at once, and their derivatives: what expansions are made of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.exact.surface import prefix_forms
from grpo_theory.problem import Problem
from grpo_theory.problem.paths import less_mean

DIFFERENCE = 5e-3
"""The step, in a logit, of central differences of up to third order: 1e-5 of truncation, 1e-9 of rounding."""


@dataclass(frozen=True, eq=False)
class LogitTables:
    """What a problem is at logits of any leading shape.

    Attributes
    ----------
    token_probabilities : ndarray, shape (..., M, D)
    probabilities : ndarray, shape (..., M, K)
        pi.
    centred : ndarray, shape (..., M, K)
        The mean reward of each response, less its penalty and less V.
    covectors : ndarray, shape (..., M, K, D)
        The scores.
    """

    token_probabilities: Array
    probabilities: Array
    centred: Array
    covectors: Array


def logit_tables(problem: Problem, logits: Array) -> LogitTables:
    """Return the tables at logits (..., M, D)."""
    paths, kl = problem.policy.paths, problem.kl
    log_tokens = paths.log_probabilities(logits)
    log_pi = paths.along(log_tokens)
    tokens, pi = np.exp(log_tokens), np.exp(log_pi)
    rewards = problem.bandit.mean_reward + np.zeros_like(pi)
    if kl is not None:
        rewards -= kl.strength * (log_pi - np.log(kl.reference))
    return LogitTables(tokens, pi, less_mean(rewards, pi), paths.centre(paths.incidence, tokens[..., None, :]))


def reward_moments(problem: Problem) -> tuple[Array, Array]:
    """Return the second and the third central moment of the reward given prompt and response, each (M, K)."""
    bandit = problem.bandit
    deviations = bandit.values - bandit.mean_reward[:, :, None]
    second, third = ((bandit.probabilities * deviations**power).sum(axis=-1) for power in (2, 3))
    return second, third


def hessian_forms(problem: Problem, logits: Array) -> Array:
    """Return the Hessian of each prompt's share of the objective in its logits, shape (..., M, D, D); see `hessian`."""
    tables, paths = logit_tables(problem, logits), problem.policy.paths
    strength = 0.0 if problem.kl is None else problem.kl.strength
    lead = tables.probabilities * tables.centred
    forms = _powers(tables.covectors, lead - strength * tables.probabilities)
    forms -= prefix_forms(paths, paths.by_prefix(paths.collect(lead)), tables.token_probabilities)
    return problem.bandit.prompt_weights[:, None, None] * forms


def noise_forms(problem: Problem, logits: Array) -> Array:
    """Return the three parts of the leave-one-out estimator's covariance in the logits, shape (3, ..., M, D, D).

    They are those of `leave_one_out_parts`, weighted by the prompts' probabilities.  The first lacks its - g g'.
    """
    tables = logit_tables(problem, logits)
    squares = tables.probabilities * (tables.centred**2 + reward_moments(problem)[0])
    slopes = ((tables.probabilities * tables.centred)[..., None] * tables.covectors).sum(axis=-2)
    outer = slopes[..., :, None] * slopes[..., None, :]
    information = _powers(tables.covectors, tables.probabilities)
    parts = outer, _powers(tables.covectors, squares) - outer, squares.sum(axis=-1)[..., None, None] * information + outer
    return problem.bandit.prompt_weights[:, None, None] * np.stack(parts)


def logit_derivative(function: Callable[[Array], Array], logits: Array, axes: int) -> Array:
    """Return the derivative in each prompt's own logits as one more, last axis, by central differences.

    Parameters
    ----------
    function : callable
        A function of logits (..., M, D). Its values have shape (..., M) followed by `axes` axes, or axes of its own before these.
    logits : ndarray, shape (..., M, D)
    axes : int
        How many axes of the value come after that of the prompts.

    Returns
    -------
    ndarray, shape of the value, and (D,)
    """
    shifts = DIFFERENCE * np.eye(logits.shape[-1])[:, None, :]
    ahead, behind = (function(logits[..., None, :, :] + sign * shifts) for sign in (1.0, -1.0))
    return np.moveaxis(ahead - behind, -2 - axes, -1) / (2.0 * DIFFERENCE)


def _powers(covectors: Array, weights: Array) -> Array:
    """Return sum_k weight_k c_k c_k', shape (..., D, D)."""
    return np.swapaxes(covectors, -1, -2) @ (weights[..., None] * covectors)
