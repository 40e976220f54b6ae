"""What a kernel sees of the responses that are drawn at a point."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import KLTerm
from grpo_theory.problem import Moments, Point


@dataclass(frozen=True, eq=False)
class Seen:
    """The fields of a batch, for every prompt and outcome.

    Attributes
    ----------
    rewards : ndarray, shape (M, O)
        Less the penalty, if the estimator has it in the reward.
    squared_score_norms : ndarray, shape (M, K)
    lengths : ndarray of int64, shape (K,)
    moments : Moments
        With these rewards: values, standard deviations and optimal baselines are theirs.
    """

    rewards: Array
    squared_score_norms: Array
    lengths: Integers
    moments: Moments

    @property
    def prompt_fields(self) -> tuple[Array, Array, Array]:
        """Values, standard deviations and optimal baselines, shape (M,) each."""
        return self.moments.known_to_oracles


def seen_at(point: Point, kl: KLTerm) -> Seen:
    """Return what the kernel of an estimator with this KL term sees of responses drawn at a point."""
    rewards, moments = point.rewards, point.moments
    if point.kl is not None and kl.name != "k1 in reward":
        rewards = point.rewards_less(reward_penalties(point, kl))
        moments = point.moments_of(rewards)
    return Seen(rewards, point.squared_score_norms, point.policy.paths.lengths, moments)


def reward_penalties(point: Point, kl: KLTerm) -> Array:
    """Return what an estimator with this KL term subtracts from the responses' rewards, (M, K): 0 if the term is in the loss.

    It is 0, too, for a response of probability 0, whose estimate of the divergence may be infinite.
    """
    if point.kl is None or kl.place != "reward":
        return np.zeros(point.probabilities.shape)
    terms = np.empty_like(point.log_ratios_to_reference)
    kl.fill(np.ascontiguousarray(point.log_ratios_to_reference), terms)
    return np.where(point.probabilities > 0.0, point.kl.strength * point.policy.paths.along(terms), 0.0)
