"""The third cumulant of the leave-one-out estimator: how skewed its noise is, at every group size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.exact.logit_forms import logit_tables, noise_forms, reward_moments
from grpo_theory.problem import Problem
from grpo_theory.validation import as_numbers


@dataclass(frozen=True, eq=False)
class ThirdCumulant:
    """The third cumulant of one group's leave-one-out estimate, its prompt drawn too, at every group size.

    Theorem (docs/derivations.md, section 14).  Given the prompt, the estimate is the sample covariance of score and reward.  Its
    third cumulant is Fisher's for a sample variance, with joint cumulants of scores and rewards in place of those of one
    variable.  The law of total cumulance combines the prompts.  The third cumulant of a batch is 1/B^2 times that of a group.

    Attributes
    ----------
    features : ndarray, shape (M, D, d)
        The derivatives of the logits in theta.
    within : ndarray, shape (4, M, D, D, D)
        The parts given the prompt, in its logits, weighted by the prompts' probabilities.
    mixed : ndarray, shape (2, d, d, d)
        Prompts' gradients about their mean times the two parts of the covariance given the prompt.
    between : ndarray, shape (d, d, d)
        The third cumulant of the prompts' gradients.
    """

    features: Array
    within: Array
    mixed: Array
    between: Array

    def at(self, group_sizes: ArrayLike) -> Array:
        """Return the cumulant at group sizes of any shape, shape (..., d, d, d)."""
        g = as_numbers("group_sizes", group_sizes)
        parts = (1.0 / g**2, 1.0 / (g * (g - 1.0)), (g - 2.0) / (g * (g - 1.0) ** 2), 1.0 / (g - 1.0) ** 2)
        within = np.tensordot(np.stack(parts, axis=-1), self.within, axes=1)
        mixed = np.tensordot(np.stack((1.0 / g, 1.0 / (g * (g - 1.0))), axis=-1), self.mixed, axes=1)
        return lift(self.features, within) + mixed + self.between


def leave_one_out_third_cumulant(problem: Problem, theta: ArrayLike) -> ThirdCumulant:
    """Compute the parts of the third cumulant exactly, for the problem at theta (d,)."""
    theta = problem.policy.check_theta(theta)
    logits, weights = problem.policy.logits(theta), problem.bandit.prompt_weights
    features = problem.policy.jacobian(theta)
    exact = problem.at(theta).moments
    deviations = exact.prompt_gradients - exact.gradient
    spread = np.swapaxes(features, 1, 2) @ noise_forms(problem, logits)[1:] @ features
    mixed = symmetric(np.einsum("mi,pmjk->pijk", deviations, spread, optimize=True))
    between = np.einsum("m,mi,mj,mk->ijk", weights, deviations, deviations, deviations, optimize=True)
    return ThirdCumulant(features, weights[:, None, None, None] * _within_prompts(problem, logits), mixed, between)


def lift(features: Array, tensors: Array) -> Array:
    """Return sum_m of tensors (..., M, D, D, D) in the logits, taken to theta by features (M, D, d), shape (..., d, d, d)."""
    twice = np.swapaxes(features, 1, 2)[:, None] @ tensors @ features[:, None]
    shape = (*tensors.shape[:-4], -1, *twice.shape[-2:])
    flat = twice.reshape(*tensors.shape[:-4], features.shape[0] * features.shape[1], -1)
    return (features.reshape(-1, features.shape[-1]).T @ flat).reshape(shape)


def symmetric(tensor: Array) -> Array:
    """Return t_ijk + t_jik + t_kij of a tensor that is symmetric in its last two indices, shape (..., d, d, d)."""
    return tensor + np.swapaxes(tensor, -3, -2) + np.moveaxis(tensor, -3, -1)


def _within_prompts(problem: Problem, logits: Array) -> Array:
    """Return the four parts of the third cumulant given each prompt, in the logits, shape (4, M, D, D, D)."""
    tables, (spread, skew) = logit_tables(problem, logits), reward_moments(problem)
    pi, c, z = tables.probabilities, tables.covectors, tables.centred
    powers = (z, z**2 + spread, z**3 + 3.0 * z * spread + skew)
    one, two, three = (pi * power for power in powers)
    variance, third = (weight.sum(axis=-1)[:, None, None, None] for weight in (two, three))

    def moment(weight: Array, order: int) -> Array:
        """Return the mean of a weight times so many copies of the covector."""
        copies = ",".join(("mka", "mkb", "mkc")[:order])
        return np.einsum(f"mk,{copies}->m{'abc'[:order]}", weight, *[c] * order, optimize=True)

    def three_ways(vector: Array, matrix: Array) -> Array:
        return symmetric(vector[:, :, None, None] * matrix[:, None, :, :])

    slope, information = moment(one, 1), moment(pi, 2)
    w_z, ww_z, www_z = slope, moment(one, 2), moment(one, 3)
    w_zz, ww_zz = moment(two, 1), moment(two, 2)
    w_zzz, www_zzz = moment(three, 1), moment(three, 3)
    cubed = slope[:, :, None, None] * slope[:, None, :, None] * slope[:, None, None, :]
    slope_information = three_ways(slope, information)
    four_www_z = www_z - slope_information
    four_ww_zz = ww_zz - information * variance[..., 0] - 2.0 * slope[:, :, None] * slope[:, None, :]
    four_w_zzz = w_zzz - 3.0 * slope * variance[..., 0, 0]
    www = moment(pi, 3)
    pairs_of_threes = www * third + three_ways(w_zz, ww_z)
    six = www_zzz - three_ways(w_zzz, information) - 3.0 * three_ways(w_z, ww_zz) - 3.0 * variance * www_z
    six += -www * third - 3.0 * three_ways(w_zz, ww_z) + 6.0 * variance * slope_information + 12.0 * cubed
    four_and_two = 3.0 * variance * four_www_z + 2.0 * three_ways(slope, four_ww_zz) + three_ways(four_w_zzz, information)
    twos = 2.0 * variance * slope_information + 2.0 * cubed
    return np.stack((six, four_and_two, pairs_of_threes, twos))
