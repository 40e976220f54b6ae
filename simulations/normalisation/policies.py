"""One prompt's log-linear policy written out in plain NumPy: success, its variance, slope and curvature.

It shares nothing with the library, so that a study can set what the library computes against it.
"""

import numpy as np


class Policy:
    """A policy over K responses, some of them correct.

    Attributes
    ----------
    logits, probabilities : ndarray, shape (K,)
    features : ndarray, shape (K, d)
        Gradients of the logits; `scale` is their spectral norm.
    correct : ndarray of bool, shape (K,)
    success, failure, variance : float
        The probabilities of a correct and of a wrong response, without the rounding of 1 - success; that of the reward.
    lead : ndarray, shape (K,)
        Probability times advantage of each response.
    """

    def __init__(self, logits, features, correct):
        self.logits, self.features, self.correct = logits, features, correct
        grown = np.exp(logits - logits.max())
        self.probabilities = grown / grown.sum()
        self.success, self.failure = (float(self.probabilities[which].sum()) for which in (correct, ~correct))
        self.variance, self.scale = self.success * self.failure, float(np.linalg.norm(features, 2))
        self.lead = self.probabilities * np.where(correct, self.failure, -self.success)

    @property
    def gradient(self):
        """E[(r - p) x], shape (d,)."""
        return self.lead @ self.features

    @property
    def hessian(self):
        """E[(r - p) W W'] with the scores W, shape (d, d)."""
        scores = self.features - self.probabilities @ self.features
        return scores.T @ (self.lead[:, None] * scores)

    @property
    def slope(self):
        """The length of the gradient."""
        return float(np.linalg.norm(self.gradient))

    @property
    def curvature(self):
        """The spectral norm of the Hessian."""
        return float(np.abs(np.linalg.eigvalsh(self.hessian)).max())

    def moved(self, step):
        """Return the policy after a step of the parameters (d,)."""
        return type(self)(self.logits + self.features @ step, self.features, self.correct)


class Unnormalised(Policy):
    """Something broken: its derivatives are taken with the softmax's denominator held fixed, so the scores are not centred."""

    @property
    def gradient(self):
        """E[r x], shape (d,)."""
        return (self.probabilities * self.correct) @ self.features

    @property
    def hessian(self):
        """E[r x x'], shape (d, d)."""
        return self.features.T @ ((self.probabilities * self.correct)[:, None] * self.features)
