"""Advantage kernels of the studies: baselines with a factor or an offset t, for curves and, where t is wrong, for controls.

They are made here and not registered, so nobody else sees them.
"""

from collections.abc import Callable
from typing import Any

import grpo_theory as gt
from grpo_theory.estimation import make_estimator


def unregistered(name: str, **how: Any) -> Callable[[Callable], gt.estimation.Estimator]:
    """Return what `gt.estimator` does, without a place in the registry."""
    return lambda function: make_estimator(name, function, **how)


def scaled_value(batch, advantages):
    """A = Z - t V(x)."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * batch.values[b]


def scaled_optimal(batch, advantages):
    """A = Z - t b*(x)."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * batch.optimal_baselines[b]


def shifted_optimal(batch, advantages):
    """A = Z - b*(x) - t."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.optimal_baselines[b] - batch.parameters[0]


def scaled_mean(batch, advantages):
    """A = Z - t times the mean of the group's other rewards."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum()
        for g in range(batch.rewards.shape[1]):
            others = (total - batch.rewards[b, g]) / (batch.rewards.shape[1] - 1)
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * others


def turned_mean(batch, advantages):
    """A = t times (the mean of the group's other rewards - Z): for t > 0 the policy descends."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum()
        for g in range(batch.rewards.shape[1]):
            others = (total - batch.rewards[b, g]) / (batch.rewards.shape[1] - 1)
            advantages[b, g] = batch.parameters[0] * (others - batch.rewards[b, g])


def constant_baseline(batch, advantages):
    """A = Z - t."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0]


ALL = (scaled_value, scaled_optimal, shifted_optimal, scaled_mean, turned_mean, constant_baseline)
KERNELS = {kernel.__name__: kernel for kernel in ALL}


def kernel_at(kernel: str, t: float, name: str = "") -> gt.Estimator:
    """Return the estimator of a kernel of this file at one t, under a name of its own or one that says t."""
    least = 2 if kernel.endswith("_mean") else 1
    return make_estimator(
        name or f"{kernel}, t = {t:g}", KERNELS[kernel], parameters={"t": t}, minimum_group_size=least, exchangeable=True
    )
