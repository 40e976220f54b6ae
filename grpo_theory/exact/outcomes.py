"""The joint law of a whole response: action and reward as one draw from one table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.kl import KL, check_penalty
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes o = (response, reward) of every prompt under a policy; O = K L.

    Attributes
    ----------
    probabilities : ndarray, shape (M, O)
    responses : ndarray of int64, shape (O,)
    rewards : ndarray, shape (M, O)
        The reward, less the KL penalty where there is one.
    policy_probabilities : ndarray, shape (M, K)
    squared_score_norms : ndarray, shape (M, K)
    """

    probabilities: Array
    responses: NDArray[np.int64]
    rewards: Array
    policy_probabilities: Array
    squared_score_norms: Array


def check_match(bandit: Bandit, policy: Policy) -> None:
    """Raise unless they are a bandit and a policy with the same prompts and responses."""
    if not isinstance(bandit, Bandit):
        raise TypeError(f"bandit must be a Bandit, got {bandit!r}")
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy, got {policy!r}")
    shapes = (bandit.n_prompts, bandit.n_responses), (policy.n_prompts, policy.n_responses)
    if shapes[0] != shapes[1]:
        raise ValueError(f"policy must have the bandit's (M, K) = {shapes[0]}, got {shapes[1]}")


def outcomes(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> Outcomes:
    """Tabulate the outcomes of every prompt."""
    check_match(bandit, policy)
    check_penalty(kl)
    pi = policy.probabilities(theta)
    n_values = bandit.values.size
    penalty = np.zeros_like(pi) if kl is None else kl.penalty(pi)
    rewards = bandit.values - penalty[:, :, None]
    joint = pi[:, :, None] * bandit.probabilities
    return Outcomes(
        probabilities=joint.reshape(bandit.n_prompts, -1),
        responses=np.repeat(np.arange(bandit.n_responses), n_values),
        rewards=rewards.reshape(bandit.n_prompts, -1),
        policy_probabilities=pi,
        squared_score_norms=squared_score_norms(policy, pi),
    )


def squared_score_norms(policy: Policy, pi: Array) -> Array:
    """Return ||Phi_m' (e_k - pi_m)||^2, shape (M, K)."""
    gram = policy.gram()
    gram_pi = np.einsum("mkl,ml->mk", gram, pi)
    own = np.einsum("mkk->mk", gram)
    both = np.einsum("mk,mk->m", pi, gram_pi)
    return np.maximum(own - 2.0 * gram_pi + both[:, None], 0.0)
