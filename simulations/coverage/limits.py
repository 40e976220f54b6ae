"""Coverages that intervals tend to as the number of prompts grows, exact for every group size, where that is not the level."""

from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

import grpo_theory as gt
from grpo_theory.arrays import Array
from simulations.coverage.problems import problem


def _share(level: float, ratio: Array) -> Array:
    """P(|N(0,1)| < z ratio), ratio that of the interval's standard error to the true one."""
    return 2.0 * ndtr(ndtri(0.5 + level / 2.0) * ratio) - 1.0


def naive_value(name: str, group_size: int, level: float) -> Array:
    """The limit for `value_naive`: the design effect 1 + (G-1) rho is left out of its variance."""
    case = problem(name)
    moments = gt.moments(case, case.theta)
    f, mean = moments.prompt_weights, moments.prompt_weights @ moments.value
    between, within = f @ (moments.value - mean) ** 2, f @ moments.reward_variance
    return _share(level, 1.0 / np.sqrt(1.0 + (group_size - 1.0) * between / (between + within)))


@cache
def _components(name: str) -> Array:
    """c1, c2 and c3 of each component of the gradient, shape (3, d)."""
    case = problem(name)
    moments = gt.moments(case, case.theta)
    pi, success, value = case.policy.probabilities(case.theta), case.bandit.mean_reward, moments.value[:, None]
    squares = case.policy.scores(case.theta) ** 2
    deviation = success * (1.0 - value) ** 2 + (1.0 - success) * value**2
    power = moments.prompt_gradients**2
    terms = (
        (moments.prompt_gradients - moments.gradient) ** 2,
        np.einsum("mk,mk,mkd->md", pi, deviation, squares) - power,
        moments.reward_variance[:, None] * np.einsum("mk,mkd->md", pi, squares) + power,
    )
    return np.stack([moments.prompt_weights @ term for term in terms])


def gradient_jackknife(name: str, group_size: int, level: float) -> Array:
    """The limit for each component of `gradient_jackknife`, about the population's gradient (docs/derivations.md, section 9)."""
    c1, c2, c3 = _components(name)
    size = float(group_size)
    truth = c1 + c2 / size + c3 / (size * (size - 1.0))
    seen = c2 / size + 2.0 * c3 / (size * (size - 2.0))
    return _share(level, np.sqrt(seen / truth))
