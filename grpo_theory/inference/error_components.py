"""Unbiased estimates of the components of the gradient's mean squared error, and their jackknife over prompts."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.inference.rollouts import Rollouts
from grpo_theory.inference.u_statistics import centred, prompt_gradients, prompt_powers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ErrorComponents:
    """Estimates of MSE = c1/B + c2/(BG) + c3/(BG(G-1)); what `GroupSizeLaw` is in truth (docs/derivations.md, section 2).

    Attributes
    ----------
    c1, c2, c3 : ndarray, shape (...)
        In units of squared gradient norm. The truth is never negative; an unbiased estimate can be.
    """

    c1: Array
    c2: Array
    c3: Array

    @property
    def optimum(self) -> Array:
        """The optimal group size 1 + sqrt(c3/c1), shape (...): infinite where c1 is not above 0, 1 where only c3 is not."""
        ratio = np.divide(np.maximum(self.c3, 0.0), self.c1, out=np.full_like(self.c1, np.inf), where=self.c1 > 0.0)
        return 1.0 + np.sqrt(ratio)

    def mse(self, batch_size: ArrayLike, group_size: ArrayLike) -> Array:
        """Return c1/B + c2/(BG) + c3/(BG(G-1)) at any batch and group size."""
        weights = mse_weights(batch_size, group_size)
        return self.c1 * weights[..., 0] + self.c2 * weights[..., 1] + self.c3 * weights[..., 2]


def mse_weights(batch_size: ArrayLike, group_size: ArrayLike) -> Array:
    """Return the weights of c1, c2 and c3 in the error at batch size B >= 1 and group size G >= 2, shape (..., 3)."""
    b, g = np.broadcast_arrays(np.asarray(batch_size, dtype=np.float64), np.asarray(group_size, dtype=np.float64))
    if not (np.isfinite(b).all() and (b >= 1).all()):
        raise ValueError(f"batch_size must be finite and at least 1, got {batch_size!r}")
    if not (np.isfinite(g).all() and (g >= 2).all()):
        raise ValueError(f"group_size must be finite and at least 2, got {group_size!r}")
    return np.stack([1.0 / b, 1.0 / (b * g), 1.0 / (b * g * (g - 1.0))], axis=-1)


class PromptTerms(NamedTuple):
    """What each prompt says: gradient estimates (..., B, J); estimates of ||g||^2 and of the terms of c2 and c3 (..., B)."""

    gradients: Array
    power: Array
    c2: Array
    c3: Array

    def components(self) -> ErrorComponents:
        """Return the unbiased estimates of c1, c2 and c3; needs B >= 2."""
        u, size = self.gradients, self.power.shape[-1]
        product = ((u.sum(axis=-2) ** 2).sum(axis=-1) - (u**2).sum(axis=(-2, -1))) / (size * (size - 1.0))
        return ErrorComponents(self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1))

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


def error_components(rollouts: Rollouts) -> ErrorComponents:
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
    ErrorComponents
        Shape (...).
    """
    return prompt_terms(rollouts, 2).components()
