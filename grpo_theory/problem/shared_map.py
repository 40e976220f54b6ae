"""Logits that all prompts share, because the prompts differ only in the state in which responses begin."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.problem.logit_map import LogitMap
from grpo_theory.validation import check_room


def for_all_prompts(logits: Array, n_prompts: int) -> Array:
    """Return logits (..., D) as those of each of M prompts, shape (..., M, D), without a copy."""
    return np.broadcast_to(logits[..., None, :], (*logits.shape[:-1], n_prompts, logits.shape[-1]))


class SharedMap(LogitMap):
    """One map for all prompts: they differ in where they begin, and not in what their logits are.

    Parameters
    ----------
    n_prompts, n_logits : int
        M and D.
    features : ndarray, shape (D, d), or None
        A free logit for every edge, d = D, if None.
    """

    def __init__(self, n_prompts: int, n_logits: int, features: Array | None) -> None:
        self.n_prompts, self.n_logits, self.features = n_prompts, n_logits, features
        self.dimension = n_logits if features is None else features.shape[1]
        if features is not None:
            features.setflags(write=False)

    def of_states(self, theta: Array) -> Array:
        """Return the logits, which all prompts share, shape (..., D)."""
        return theta if self.features is None else theta @ self.features.T

    def vectors(self, covectors: Array) -> Array:
        """Return Phi' c for covectors c of shape (..., D), shape (..., d)."""
        return covectors if self.features is None else covectors @ self.features

    def logits(self, theta: Array) -> Array:
        """Return the logits, the same for each prompt, shape (..., M, D)."""
        return for_all_prompts(self.of_states(theta), self.n_prompts)

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return Phi' c_m, shape (M, d)."""
        return self.vectors(covectors)

    def adjoint(self, covectors: Array) -> Array:
        """Return Phi' sum_m c_m, shape (d,)."""
        return self.vectors(covectors.sum(axis=0))

    def gram(self) -> Array:
        """Return Phi Phi' for each prompt, shape (M, D, D)."""
        check_room("the inner products of all logits", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        own = np.eye(self.n_logits) if self.features is None else self.features @ self.features.T
        return np.broadcast_to(own, (self.n_prompts, *own.shape))

    def congruence(self, forms: Array) -> Array:
        """Return Phi' (sum_m A_m) Phi, shape (d, d)."""
        total = forms.sum(axis=0)
        return total if self.features is None else self.features.T @ total @ self.features

    def squared_norms(self, covectors: Array) -> Array:
        """Return ||Phi' c||^2, shape (M, K)."""
        return (self.vectors(covectors) ** 2).sum(axis=-1)
