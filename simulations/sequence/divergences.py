"""Divergences between policies, and their gradients by a step along the imaginary axis.

The derivative of an analytic function f at x is Im f(x + ih)/h up to h^2, without the cancellation of a difference. With h =
1e-30 it is exact to the last bits, and it shares no formula with the scores of the package.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = 1e-30
Numbers = NDArray[Any]
"""Real or complex."""


def token_logs(problem, theta):
    """Return the log probability of each token given its prefix, shape (M, D), for complex parameters (d,)."""
    policy = problem.policy
    logits = policy.logits(theta.real) + 1j * policy.logits(theta.imag)
    by_prefix = logits.reshape(len(logits), -1, policy.paths.vocabulary_size)
    by_prefix = by_prefix - by_prefix.real.max(axis=-1, keepdims=True)
    logs = by_prefix - np.log(np.exp(by_prefix).sum(axis=-1, keepdims=True))
    return logs.reshape(logits.shape)


def gradient(problem, divergence, theta):
    """Return the derivative of a function of the policy's token logs (M, D), shape (d,)."""
    steps = theta + 1j * STEP * np.eye(theta.size)
    return np.array([divergence(token_logs(problem, step)).imag / STEP for step in steps])


def between(problem, other):
    """Return E KL(pi || other) of whole responses, with `other` the token logs (M, D) of another policy."""
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights
    theirs = paths.along(other)
    return lambda logs: weights @ (np.exp(paths.along(logs)) * (paths.along(logs) - theirs)).sum(axis=1)


def expected(problem, sampler, term):
    """Return E sum_t term of the tokens' logs, over responses of a policy that is held fixed; terms are (M, D)."""
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights
    return lambda logs: weights @ (sampler.probabilities * paths.along(term(logs))).sum(axis=1)


def at_held_prefixes(problem, sampler, term):
    """Return E sum_t sum_y term(y) over tokens y, at prefixes that a policy held fixed visits; terms are (M, D)."""
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights
    visits = paths.by_prefix(paths.collect(sampler.probabilities))
    return lambda logs: weights @ (visits * term(logs)).sum(axis=1)
