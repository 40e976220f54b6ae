"""A Kullback-Leibler penalty towards a reference policy, placed in the reward."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.validation import as_positive, as_real_array, check_distribution, check_shape


@dataclass(frozen=True, eq=False)
class KL:
    """The objective E[Z] - strength * E KL(pi(.|X) || reference(.|X)), as a penalty in the reward.

    The reward of response k to prompt m becomes Z - strength * log(pi(k|m) / reference(k|m)).  Its score-function gradient
    is the gradient of the objective, for E[W] = 0.

    Parameters
    ----------
    strength : float
        Above 0, in units of reward per nat.
    reference : array_like, shape (M, K)
        The reference policy's probabilities, all positive.
    """

    strength: float
    reference: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", as_positive("strength", self.strength))
        reference = as_real_array("reference", self.reference, 2)
        check_distribution("reference", reference)
        if reference.min() <= 0.0:
            raise ValueError(f"reference must be positive everywhere, got {reference.min():g}")
        object.__setattr__(self, "reference", reference)

    def check_reference(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the reference, shape (M, K); raise unless `shape` is that."""
        reference = np.asarray(self.reference)
        check_shape("reference", reference, shape, "(M, K), the policy's prompts and responses")
        return reference

    def penalty(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return strength * log(pi / reference), shape (M, K); 0 where pi is 0."""
        reference = self.check_reference(probabilities.shape)
        log_ratio = np.zeros_like(probabilities)
        np.log(probabilities / reference, out=log_ratio, where=probabilities > 0.0)
        return self.strength * log_ratio


def check_penalty(kl: KL | None) -> None:
    """Raise unless `kl` is a penalty or None."""
    if kl is not None and not isinstance(kl, KL):
        raise TypeError(f"kl must be a KL(strength, reference) or None, got {kl!r}")
