"""Exact gradient steps on one prompt at a time, plain or divided, for many runs at once."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.validation import Array, Integers

SHARP_STEPS = 3.0 * np.sqrt(3.0), 1.7
"""In units of 1/X^2: the plain step of the best guarantee, and the divided one to two digits."""


class State(NamedTuple):
    """Success, p(1 - p) and gradients of each prompt's success, in R runs."""

    success: Array
    variance: Array
    gradients: Array

    @property
    def squares(self) -> Array:
        """||grad J_i||^2, shape (R, n)."""
        return np.asarray((self.gradients**2).sum(axis=-1))


class Step(NamedTuple):
    """theta + size grad J_i/V_i^power for the prompt drawn: plain with power 0, divided with power 1/2."""

    size: float
    power: float


class Prompts:
    """A log-linear problem with one right answer to each prompt, its gradients vectorised over runs.

    Features are (n, answers, d), the right answers an indicator (n, answers), and theta, where runs start, is (d,).
    """

    def __init__(self, features: Array, right: Array, theta: Array) -> None:
        self.features, self.right, self.theta = features, right, theta

    @classmethod
    def of(cls, problem: gt.Problem) -> "Prompts":
        """Return the prompts of a problem."""
        n, answers, d = problem.policy.n_prompts, problem.policy.n_responses, problem.policy.dimension
        features = problem.policy.jacobian().reshape(n, answers, d)
        return cls(features, problem.bandit.mean_reward, np.asarray(problem.theta))

    @cached_property
    def norms(self) -> Array:
        """The spectral norms ||X_i|| of the prompts' features, shape (n,)."""
        return np.asarray(np.linalg.norm(self.features, 2, axis=(1, 2)))

    def at(self, theta: Array) -> State:
        """Return the state at theta (R, d)."""
        n, answers, d = self.features.shape
        p = softmax((theta @ self.features.reshape(-1, d).T).reshape(-1, n, answers), axis=-1)
        own = (p * self.right).sum(axis=-1)
        failure = (p * (1.0 - self.right)).sum(axis=-1)
        pull = own[..., None] * (self.right - p)
        return State(own, own * failure, np.moveaxis(np.matmul(np.moveaxis(pull, 1, 0), self.features), 0, 1))

    def step(self, theta: Array, state: State, drawn: Integers, step: Step) -> Array:
        """Return theta (R, d) after a step on the prompt that each run has drawn, (R,)."""
        runs = np.arange(len(theta))
        scale = step.size / state.variance[runs, drawn] ** step.power
        return theta + scale[:, None] * state.gradients[runs, drawn]
