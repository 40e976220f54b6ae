"""A Kullback-Leibler penalty towards a reference policy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_distribution, as_positive, check_shape


@dataclass(frozen=True, eq=False)
class KL:
    """The penalty in the objective E[Z] - strength * E KL(pi(.|X) || reference(.|X)).

    The penalty is part of the reward, unless an estimator's composition puts it into the loss.  The reward of response k to
    prompt m becomes Z - strength * log(pi(k|m) / reference(k|m)).  The score-function gradient with that reward is the gradient
    of the objective, because E[W] = 0.

    Parameters
    ----------
    strength : float
        Above 0, in units of reward per nat.
    reference : array_like, shape (M, K)
        The reference policy's probabilities of the responses, all positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> penalty = gt.KL(0.1, [[0.5, 0.5]])
    >>> problem = gt.Problem(gt.Bandit([[0.9, 0.4]]), gt.TabularSoftmax(1, 2), kl=penalty)
    >>> round(float(gt.objective(problem, [1.0, 0.0])), 4)
    0.7544
    >>> penalty.check_reference((1, 2)).tolist()
    [[0.5, 0.5]]
    """

    strength: float
    reference: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", as_positive("strength", self.strength))
        reference = as_distribution("reference", self.reference, 2)
        if reference.min() <= 0.0:
            raise ValueError(f"reference must be positive everywhere, got {reference.min():g}")
        reference.setflags(write=False)
        object.__setattr__(self, "reference", reference)

    def check_reference(self, shape: tuple[int, ...]) -> Array:
        """Return the reference, shape (M, K); raise unless `shape` is that."""
        reference = np.asarray(self.reference)
        check_shape("reference", reference, shape, "(M, K), the policy's prompts and responses")
        return reference
