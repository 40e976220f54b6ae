"""Checkpoints of one rollout: the policy after some expected updates, all on responses of the problem's own policy.

And what the studies of SmolLM2 off policy have in common.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator

SEVERAL = "lm-answers"
"""The problem whose answers have several tokens."""
FIRST = 1e-3
"""KL(before || after) of the first update, in nats a response: what trainers watch stays between about 1e-4 and 1e-2."""


def divergence(problem: gt.Problem, before: Array, after: Array) -> float:
    """Return E KL(pi_before || pi_after) of whole responses, in nats."""
    then, now = (problem.policy.log_probabilities(theta) for theta in (before, after))
    return float(problem.bandit.prompt_weights @ (np.exp(then) * (then - now)).sum(axis=1))


def checkpoints(problem: gt.Problem, update: Estimator, counts: Sequence[int], group_size: int) -> dict[int, Array]:
    """Return the policy after each of some numbers of expected updates.

    The step size is constant, and such that the first update moves the policy by `FIRST` nats.

    Parameters
    ----------
    problem : Problem
        Its theta is the policy that samples.
    update : Estimator
        Whose exact mean, given the responses' policy and the current one, is the direction of every update.
    counts : sequence of int
        Rising.
    group_size : int
    """
    start = np.array(problem.theta)
    sizes = {"batch_size": 1, "group_size": group_size}
    first = gt.gradient_mean(problem, start, update, **sizes)
    unit = first / np.linalg.norm(first)

    def excess(log_length: float) -> float:
        return float(np.log(divergence(problem, start, start + np.exp(log_length) * unit) / FIRST))

    # About the square root, because the divergence grows as the square of the length.
    guess = -0.5 * excess(0.0)
    length = np.exp(brentq(excess, guess - 3.0, guess + 3.0, xtol=1e-3))
    step = length / np.linalg.norm(first)
    policies, theta = {}, start + step * first
    for count in range(1, max(counts) + 1):
        if count > 1:
            theta = theta + step * gt.gradient_mean(problem, theta, update, **sizes, behaviour=start)
        if count in counts:
            policies[count] = theta
    return policies
