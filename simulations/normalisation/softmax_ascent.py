"""A softmax bandit, the two sides of bounds on its slope and curvature, and the gaps along exact ascent from equal logits."""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, compile_function
from grpo_theory.theory import GREATEST_CURVATURE

STEP = 0.4
LEAST_SHORTFALL = 0.1
"""Of random bandits: what is left of the second best decays only after some K/(step shortfall) updates."""


def _gaps(rewards: Array, signs: Array, step: float, power: float, gaps: Array) -> None:
    logits = np.zeros(rewards.size)
    best = rewards.max()
    for t in range(gaps.size):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        gaps[t] = (shares * (best - rewards)).sum()
        advantages = rewards - (shares * rewards).sum()
        deviation = np.sqrt((shares * advantages**2).sum())
        logits += signs[t % signs.size] * step / deviation**power * shares * advantages


_ASCEND = compile_function(_gaps, numba.void(F1, F1, numba.float64, numba.float64, F1))


class Rule(NamedTuple):
    """How the parameters move: signs of the steps, in turn, and the power of the standard deviation that divides them."""

    signs: tuple[float, ...]
    power: float

    def gaps(self, rewards: Array, updates: int) -> Array:
        """Return the gap before each of the updates, shape (updates,), from equal logits."""
        gaps = np.empty(updates)
        _ASCEND(np.ascontiguousarray(rewards), np.array(self.signs), STEP, self.power, gaps)
        return gaps


ASCENT, ASTRAY = Rule((1.0,), 0.0), Rule((1.0, -1.0), 0.0)
"""As stated, and broken: every second step has the wrong sign."""
RULES = {
    "undivided": ASCENT,
    "divided": Rule((1.0,), 1.0),
    "undivided, turned": Rule((1.0, 1.0, -1.0), 0.0),
    "divided, turned": Rule((1.0, 1.0, -1.0), 1.0),
}
"""Whose laws are read off long paths; broken, every third step has the wrong sign."""


class Bandit(NamedTuple):
    """A policy's logits (K,) and the rewards (K,)."""

    logits: Array
    rewards: Array

    @property
    def probabilities(self) -> Array:
        """The policy, shape (K,)."""
        grown = np.exp(self.logits - self.logits.max())
        return np.asarray(grown / grown.sum())

    @property
    def lead(self) -> Array:
        """Probability times advantage of each response, shape (K,), from differences of rewards, which are exact."""
        pi = self.probabilities
        return np.asarray(pi * ((self.rewards[:, None] - self.rewards) @ pi))

    @property
    def slope(self) -> float:
        """The length of the gradient."""
        return float(np.linalg.norm(self.lead))

    @property
    def curvature(self) -> float:
        """The spectral norm of the Hessian E[(r - E r) W W'], W the scores."""
        scores = np.eye(self.rewards.size) - self.probabilities
        return float(np.abs(np.linalg.eigvalsh(scores.T @ (self.lead[:, None] * scores))).max())

    @property
    def promise(self) -> float:
        """The best response's probability times the gap."""
        pi, best = self.probabilities, int(self.rewards.argmax())
        return float(pi[best] * (pi @ (self.rewards[best] - self.rewards)))


def random_rewards(rng: np.random.Generator, k: int) -> Array:
    """Return random rewards whose best is above the others by the least shortfall; every other time they are 0 and 1."""
    rewards = rng.uniform(size=k)
    best = rng.integers(k)
    if rng.uniform() < 0.5:
        return np.asarray(np.eye(k)[best])
    rewards[best] = 0.0
    rewards *= 1.0 - LEAST_SHORTFALL
    rewards[best] = rng.uniform(rewards.max() + LEAST_SHORTFALL, 1.0)
    return np.asarray(rewards)


Sides = Callable[[Bandit, float], tuple[float, float]]


def slope(bandit: Bandit, scale: float) -> tuple[float, float]:
    """pi(a*) gap against ||grad||; the broken gradient has the own sample in the mean of a group of two, so half of it."""
    return bandit.promise, scale * bandit.slope


def sharp_slope(bandit: Bandit, scale: float) -> tuple[float, float]:
    """Sqrt(K/(K-1)) times that against ||grad||."""
    k = bandit.rewards.size
    return np.sqrt(k / (k - 1.0)) * bandit.promise, scale * bandit.slope


def smoothness(bandit: Bandit, scale: float) -> tuple[float, float]:
    """||Hess|| against 5/2."""
    return bandit._replace(rewards=bandit.rewards * scale).curvature, 2.5


def sharp_smoothness(bandit: Bandit, scale: float) -> tuple[float, float]:
    """||Hess|| against 1/(3 sqrt 3)."""
    return bandit._replace(rewards=bandit.rewards * scale).curvature, GREATEST_CURVATURE
