"""Unbiased estimates of the components of the gradient's mean squared error, and their jackknife over prompts."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, F3, function_value
from grpo_theory.intervals.u_statistics import GROUPS, gradients_and_powers
from grpo_theory.samples import Groups
from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import ROUNDING, typed


class PromptTerms(NamedTuple):
    """What each prompt says: gradient estimates (..., B, J); estimates of ||g||^2 and of the terms of c2 and c3 (..., B)."""

    gradients: Array
    power: Array
    c2: Array
    c3: Array

    def components(self) -> GroupSizeLaw:
        """Return the unbiased estimates of c1, c2 and c3; needs B >= 2.

        An estimate of c1 that is 0 but for rounding is 0: its sign decides whether there is an optimal group size.
        """
        size, width = self.gradients.shape[-2:]
        product = np.empty(self.power.shape[:-1])
        products_of_pairs(self.gradients.reshape(-1, size, width), product.reshape(-1))
        c1, c2, c3 = self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1)
        return GroupSizeLaw(np.where(np.abs(c1) <= ROUNDING * (np.abs(c2) + np.abs(c3)), 0.0, c1), c2, c3)

    def covariance(self) -> Array:
        """Return the delete-one-prompt jackknife covariance of the estimates, shape (..., 3, 3); needs B >= 3."""
        size, width = self.gradients.shape[-2:]
        covariances = np.empty((*self.power.shape[:-1], 3, 3))
        terms = np.stack([self.power, self.c2, self.c3], axis=-2)
        jackknife_covariances(self.gradients.reshape(-1, size, width), terms.reshape(-1, 3, size), covariances.reshape(-1, 3, 3))
        return covariances

    def influences(self) -> Array:
        """Return what each prompt adds to the error of the three estimates, shape (..., 3, B); needs B >= 3.

        The sums of their products over B (B - 1) are the covariance.
        """
        size = self.gradients.shape[-2]
        total = self.gradients.sum(axis=-2, keepdims=True)
        others = (self.gradients * (total - self.gradients)).sum(axis=-1)
        influences = np.stack([self.power - 2.0 / (size - 2.0) * others, self.c2, self.c3], axis=-2)
        return influences - influences.mean(axis=-1, keepdims=True)


@function_value(numba.void(GROUPS, F1))
def products_of_pairs(gradients, products):
    """Fill in the mean products (N,) of different prompts' estimates (N, B, J)."""
    n, size, width = gradients.shape
    for i in range(n):
        u, product = gradients[i], 0.0
        for j in range(width):
            total = square = 0.0
            for b in range(size):
                total += u[b, j]
                square += u[b, j] * u[b, j]
            product += total * total - square
        products[i] = product / (size * (size - 1.0))


@function_value(numba.void(GROUPS, F3, F3))
def jackknife_covariances(gradients, terms, covariances):
    """Fill in the covariances (N, 3, 3), from gradient estimates (N, B, J) and terms (N, 3, B); exactly 0 of what is constant."""
    n, size, width = gradients.shape
    total, influence, others = np.empty(width), np.empty((3, size)), np.empty(size)
    for i in range(n):
        u, term, out = gradients[i], terms[i], covariances[i]
        for j in range(width):
            total[j] = 0.0
            for b in range(size):
                total[j] += u[b, j]
        product = 0.0
        for b in range(size):
            others[b] = 0.0
            for j in range(width):
                others[b] += u[b, j] * (total[j] - u[b, j])
            # Sums are of differences from the first prompt's: what all prompts have in common is 0 exactly, and not rounding.
            product += others[b] - others[0]
        for k in range(3):
            mean = 0.0
            for b in range(size):
                mean += term[k, b] - term[k, 0]
            for b in range(size):
                influence[k, b] = term[k, b] - term[k, 0] - mean / size
        for b in range(size):
            influence[0, b] -= 2.0 / (size - 2.0) * (others[b] - others[0] - product / size)
        for k in range(3):
            for m in range(3):
                moment = 0.0
                for b in range(size):
                    moment += influence[k, b] * influence[m, b]
                out[k, m] = moment / (size * (size - 1.0))


def prompt_terms(rollouts: Groups, prompts: int) -> PromptTerms:
    """Return what each prompt says, of at least so many prompts with four responses."""
    rollouts.require(prompts=prompts, responses=4)
    gradients, powers = gradients_and_powers(rollouts)
    return PromptTerms(gradients, powers.gradient, powers.advantage - powers.gradient, powers.independent + powers.gradient)


@typed
def estimate_group_size_law(rollouts: Groups) -> GroupSizeLaw:
    """Estimate c1, c2 and c3 without bias from a pilot batch.

    c1 = E||g(X)||^2 - ||g||^2, c2 = E[E(||W||^2 (Z - V)^2 | X) - ||g(X)||^2] and c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].
    What stands under E is estimated by each prompt's U-statistics (`prompt_powers`), ||g||^2 by the products of different
    prompts' gradient estimates. The mean of W must be 0, as that of a score is.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.

    Returns
    -------
    GroupSizeLaw
        Shape (...).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()  # of a language model
    >>> rollouts = gt.Rollouts(data.rewards[data.index], data.sketches[data.index])
    >>> round(float(gt.intervals.estimate_group_size_law(rollouts).optimum), 1)
    3.1
    """
    return prompt_terms(rollouts, 2).components()
