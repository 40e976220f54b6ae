"""The Hessian of the objective, estimated from rollouts."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import Array, as_not_negative, as_numbers, check_shape


def rollout_hessian(rewards: ArrayLike, scores: ArrayLike, strength: float = 0.0) -> Array:
    """Estimate the Hessian of the objective from rollouts, for a policy with linear logits over single tokens.

    Theorem (docs/derivations.md, section 13).  With C_g the mean of the group's other rewards, the mean of

        (Z_g - C_g - strength) W_g W_g'

    over the responses of a batch is unbiased for the Hessian of E[Z] - strength KL(pi || reference), the penalty being in Z.

    Parameters
    ----------
    rewards : array_like, shape (..., B, G)
        G at least 2.
    scores : array_like, shape (..., B, G, d)
        W = grad log pi at the parameters that drew the responses.
    strength : float, default 0
        Of the KL penalty.

    Returns
    -------
    ndarray, shape (..., d, d)
        Average it over the steps of the last part of a run.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("kl-linear"), gt.Pilot(batch_size=4, group_size=8)
    >>> rollouts = pilot.sample(problem, 0, replications=3)
    >>> gt.samples.rollout_hessian(rollouts.rewards, rollouts.scores, problem.kl.strength).shape
    (3, 3, 3)
    """
    rewards, scores = as_numbers("rewards", rewards), as_numbers("scores", scores)
    strength = as_not_negative("strength", strength)
    if rewards.ndim < 2 or rewards.shape[-1] < 2:
        raise ValueError(f"rewards must have shape (..., B, G) with G at least 2, got {rewards.shape}")
    check_shape("scores", scores, (*rewards.shape, *scores.shape[-1:]), "(..., B, G, d)")
    group_size = rewards.shape[-1]
    advantages = (rewards - rewards.mean(axis=-1, keepdims=True)) * group_size / (group_size - 1.0)
    products = np.einsum("...bg,...bgi,...bgj->...ij", advantages - strength, scores, scores)
    return products / (rewards.shape[-2] * group_size)
