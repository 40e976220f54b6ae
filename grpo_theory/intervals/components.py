"""Unbiased estimates of the components of the gradient's mean squared error, and their jackknife over prompts."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.intervals.u_statistics import centred, prompt_gradients, prompt_powers
from grpo_theory.samples import Rollouts
from grpo_theory.theory import GroupSizeLaw


class PromptTerms(NamedTuple):
    """What each prompt says: gradient estimates (..., B, J); estimates of ||g||^2 and of the terms of c2 and c3 (..., B)."""

    gradients: Array
    power: Array
    c2: Array
    c3: Array

    def components(self) -> GroupSizeLaw:
        """Return the unbiased estimates of c1, c2 and c3; needs B >= 2."""
        u, size = self.gradients, self.power.shape[-1]
        product = ((u.sum(axis=-2) ** 2).sum(axis=-1) - (u**2).sum(axis=(-2, -1))) / (size * (size - 1.0))
        return GroupSizeLaw(self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1))

    def covariance(self) -> Array:
        """Return the delete-one-prompt jackknife covariance of the estimates, shape (..., 3, 3); needs B >= 3."""
        u, size = self.gradients, self.power.shape[-1]
        with_others = (u @ u.sum(axis=-2)[..., None])[..., 0] - (u**2).sum(axis=-1)
        first = centred(self.power, -1) - 2.0 / (size - 2.0) * centred(with_others, -1)
        influence = np.stack([first, centred(self.c2, -1), centred(self.c3, -1)], axis=-1)
        return np.swapaxes(influence, -1, -2) @ influence / (size * (size - 1.0))


def prompt_terms(rollouts: Rollouts, prompts: int) -> PromptTerms:
    """Return what each prompt says, of at least so many prompts with four responses."""
    rollouts.require(prompts=prompts, responses=4)
    powers = prompt_powers(rollouts)
    return PromptTerms(
        prompt_gradients(rollouts), powers.gradient, powers.advantage - powers.gradient, powers.independent + powers.gradient
    )


def estimate_group_size_law(rollouts: Rollouts) -> GroupSizeLaw:
    """Estimate c1, c2 and c3 without bias from a pilot batch.

    c1 = E||g(X)||^2 - ||g||^2, c2 = E[E(||W||^2 (Z - V)^2 | X) - ||g(X)||^2] and c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].
    What stands under E is estimated by each prompt's U-statistics (`prompt_powers`), ||g||^2 by the products of different
    prompts' gradient estimates. The mean of W must be 0, as that of a score is.

    Parameters
    ----------
    rollouts : Rollouts
        B >= 2 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.

    Returns
    -------
    GroupSizeLaw
        Shape (...).
    """
    return prompt_terms(rollouts, 2).components()
