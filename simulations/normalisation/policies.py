"""One prompt's log-linear policy written out in plain NumPy: success, its variance, slope and curvature.

It shares nothing with the library, so that a study can set what the library computes against it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from grpo_theory.arrays import Array, Flags


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy over K responses, some of them correct.

    Attributes
    ----------
    logits : ndarray, shape (K,)
    features : ndarray, shape (K, d)
        Gradients of the logits.
    correct : ndarray of bool, shape (K,)
    """

    logits: Array
    features: Array
    correct: Flags

    @cached_property
    def probabilities(self) -> Array:
        """The responses' probabilities, shape (K,)."""
        grown = np.exp(self.logits - self.logits.max())
        return np.asarray(grown / grown.sum())

    @cached_property
    def success(self) -> float:
        """The probability of a correct response."""
        return float(self.probabilities[self.correct].sum())

    @cached_property
    def failure(self) -> float:
        """The probability of a wrong one, without the rounding of 1 - success."""
        return float(self.probabilities[~self.correct].sum())

    @cached_property
    def variance(self) -> float:
        """The variance of the reward."""
        return self.success * self.failure

    @cached_property
    def scale(self) -> float:
        """The spectral norm of the features."""
        return float(np.linalg.norm(self.features, 2))

    @cached_property
    def lead(self) -> Array:
        """Probability times advantage of each response, shape (K,)."""
        return self.probabilities * np.where(self.correct, self.failure, -self.success)

    @property
    def gradient(self) -> Array:
        """E[(r - p) x], shape (d,)."""
        return np.asarray(self.lead @ self.features)

    @property
    def hessian(self) -> Array:
        """E[(r - p) W W'] with the scores W, shape (d, d)."""
        scores = self.features - self.probabilities @ self.features
        return np.asarray(scores.T @ (self.lead[:, None] * scores))

    @property
    def slope(self) -> float:
        """The length of the gradient."""
        return float(np.linalg.norm(self.gradient))

    @property
    def curvature(self) -> float:
        """The spectral norm of the Hessian."""
        return float(np.abs(np.linalg.eigvalsh(self.hessian)).max())

    def moved(self, step: Array) -> Self:
        """Return the policy after a step of the parameters (d,)."""
        return replace(self, logits=self.logits + self.features @ step)


class Unnormalised(Policy):
    """Something broken: its derivatives are taken with the softmax's denominator held fixed, so the scores are not centred."""

    @property
    def gradient(self) -> Array:
        """E[r x], shape (d,)."""
        return np.asarray((self.probabilities * self.correct) @ self.features)

    @property
    def hessian(self) -> Array:
        """E[r x x'], shape (d, d)."""
        return np.asarray(self.features.T @ ((self.probabilities * self.correct)[:, None] * self.features))
