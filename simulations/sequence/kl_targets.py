"""The gradients of divergences that KL terms are said to estimate, on and off policy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from simulations.sequence.divergences import Numbers, at_held_prefixes, between, expected, gradient


def log_reference_of(problem: gt.Problem) -> Array:
    """Return the log probability of each token under the reference, shape (M, D)."""
    assert problem.log_reference is not None
    return problem.log_reference


def on_policy_targets(problem: gt.Problem, here: gt.Point) -> Mapping[str, Array]:
    """Return what each term is said to estimate of responses of the policy itself (docs/derivations.md, section 19)."""
    log_reference = log_reference_of(problem)
    own = here.token_log_probabilities

    def reverse_term(logs: Numbers) -> Numbers:
        return np.exp(logs) * (logs - log_reference)

    def forward_term(logs: Numbers) -> Numbers:
        return np.exp(log_reference) * (log_reference - logs)

    def k2_term(logs: Numbers) -> Numbers:
        return 0.5 * (logs - log_reference) ** 2

    def moving(logs: Numbers) -> Any:
        paths = problem.policy.paths
        values = np.exp(paths.along(logs)) * paths.along(k2_term(own))
        return problem.bandit.prompt_weights @ values.sum(axis=1)

    def slope(divergence: Any) -> Array:
        return gradient(problem, divergence, here.theta)

    reverse, forward = slope(between(problem, log_reference)), slope(at_held_prefixes(problem, here, forward_term))
    return {
        "k1 in reward": reverse,
        "k2 in reward": slope(moving),
        "k3 in reward": reverse - forward,
        "k1 in loss": np.zeros_like(reverse),
        "k2 in loss": slope(at_held_prefixes(problem, here, reverse_term)),
        "k3 in loss": forward,
        "k3 in loss, as printed": forward,
    }


def off_policy_targets(problem: gt.Problem, here: gt.Point, sampler: gt.Point) -> Mapping[str, Array]:
    """Return what the terms are said to estimate of responses of another policy."""
    log_reference, then = log_reference_of(problem), sampler.token_log_probabilities

    def slope(divergence: Any) -> Array:
        return gradient(problem, divergence, here.theta)

    reverse = slope(between(problem, log_reference))
    return {
        "k1 in reward": reverse - slope(between(problem, then)),
        "k1 in loss": slope(expected(problem, sampler, lambda logs: logs)),
        "k2 in loss": slope(expected(problem, sampler, lambda logs: 0.5 * (logs - log_reference) ** 2)),
        "k3 in loss": slope(expected(problem, sampler, lambda logs: np.exp(log_reference - logs) + logs)),
    }
