"""A softmax bandit, its slope and curvature written out, and the gaps along exact ascent from equal logits."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F1, compile_function

STEP = 0.4


def _gaps(rewards: Array, signs: Array, step: float, power: float, found: Array) -> None:
    logits = np.zeros(rewards.size)
    best = rewards.max()
    for t in range(found.size):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        found[t] = (shares * (best - rewards)).sum()
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
        found = np.empty(updates)
        _ASCEND(np.ascontiguousarray(rewards), np.array(self.signs), STEP, self.power, found)
        return found


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
