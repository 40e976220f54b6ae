"""Exact mean, covariance and mean squared error of any group estimator of the policy gradient."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.estimator.kernel import PROMPT_FIELDS
from grpo_theory.estimator.registry import Estimator, find
from grpo_theory.exact.classes import Classes, classes
from grpo_theory.exact.moments import Moments, moments
from grpo_theory.exact.multisets import (
    MAXIMUM_COUNTS,
    MAXIMUM_RESPONSES,
    AdvantageMoments,
    advantage_moments,
    count_multisets,
)
from grpo_theory.exact.outcomes import outcomes
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.validation import as_count, as_real_array, check_shape

Array = NDArray[np.float64]


class NotEnumerableError(ValueError):
    """An estimator whose exact moments are not to be had by enumeration; simulation still is."""


@dataclass(frozen=True)
class GradientLaw:
    """First two moments of (1/BG) sum_bg A_bg W_bg, prompts drawn from f, at one theta.

    Attributes
    ----------
    policy : Policy
    batch_size, group_size : int
        B prompts, G responses each.
    true_gradient : ndarray, shape (d,)
    true_covectors : ndarray, shape (M, K)
        c(x) with g(x) = Phi' c(x).
    prompt_weights : ndarray, shape (M,)
    mean_covectors : ndarray, shape (M, K)
        c(x) with E[one group's estimate | x] = Phi' c(x).
    second_moments : ndarray, shape (M, K, K)
        A(x) with E[one group's estimate times its transpose | x] = Phi' A(x) Phi.
    """

    policy: Policy
    batch_size: int
    group_size: int
    true_gradient: Array
    true_covectors: Array
    prompt_weights: Array
    mean_covectors: Array
    second_moments: Array

    @property
    def mean(self) -> Array:
        """The expected estimate, shape (d,)."""
        return self.policy.adjoint(self.prompt_weights[:, None] * self.mean_covectors)

    @property
    def bias(self) -> Array:
        """The expected estimate less the true gradient, shape (d,)."""
        return self.mean - self.true_gradient

    @property
    def prompt_traces(self) -> Array:
        """Trace of the covariance of one group's estimate given the prompt, shape (M,)."""
        powers = np.einsum("mk,mkl,ml->m", self.mean_covectors, self.policy.gram(), self.mean_covectors)
        return self._powers() - powers

    @property
    def trace(self) -> float:
        """Trace of the covariance of the batch's estimate."""
        mean = self.mean
        return float(self.prompt_weights @ self._powers() - mean @ mean) / self.batch_size

    @property
    def mse(self) -> float:
        """E||estimate - true gradient||^2: trace of the covariance plus squared bias."""
        return self.trace + float(self.bias @ self.bias)

    @property
    def prompt_mses(self) -> Array:
        """E||one group's estimate - g(x)||^2 given the prompt, shape (M,)."""
        bias = self.mean_covectors - self.true_covectors
        return self.prompt_traces + np.einsum("mk,mkl,ml->m", bias, self.policy.gram(), bias)

    @property
    def prompt_mse(self) -> float:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x)."""
        return float(self.prompt_weights @ self.prompt_mses)

    def covariance(self) -> Array:
        """Return the covariance of the batch's estimate, shape (d, d)."""
        second = self.policy.congruence(self.prompt_weights[:, None, None] * self.second_moments)
        return (second - np.outer(self.mean, self.mean)) / self.batch_size

    def variance_along(self, directions: ArrayLike) -> Array:
        """Return the variance of <v, estimate> for each direction v, shape (J,), for directions of shape (J, d)."""
        directions = as_real_array("directions", directions, 2)
        check_shape("directions", directions, (len(directions), self.policy.dimension), "(J, d)")
        along = self.policy.logits(directions)
        second = np.einsum("m,jmk,mkl,jml->j", self.prompt_weights, along, self.second_moments, along, optimize=True)
        return (second - (directions @ self.mean) ** 2) / self.batch_size

    def _powers(self) -> Array:
        return np.einsum("mkl,mkl->m", self.second_moments, self.policy.gram())


def gradient_law(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    kl: KL | None = None,
) -> GradientLaw:
    """Compute the exact first two moments of an estimator's gradient.

    All multisets of what the kernel can tell apart in a group are enumerated: reward values for a kernel that reads only
    rewards, outcomes otherwise.  Nothing of size d x d is formed.

    Parameters
    ----------
    bandit, policy, theta
        The problem, the policy and its parameters (d,).
    estimator : str or Estimator
        Any registered estimator that does not couple groups.
    batch_size, group_size : int
        B prompts, G responses each.
    kl : KL, optional
        A penalty, placed in the reward.

    Returns
    -------
    GradientLaw

    Raises
    ------
    NotEnumerableError
        If the estimator couples groups, or needs too many multisets; a ValueError.
    ValueError
        If the kernel is not exchangeable or yields NaN.
    """
    estimator = find(estimator)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    estimator.check_group_size(group_size)
    if estimator.couples_groups:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} couples groups: use simulate_gradients, exact sums need one group"
        )
    truth = moments(bandit, policy, theta, kl)
    table = outcomes(bandit, policy, theta, kl)
    laws = [classes(table, prompt, estimator.reads) for prompt in range(bandit.n_prompts)]
    sums = _sum_by_look(estimator, laws, truth, group_size)
    pi = table.policy_probabilities
    mean = np.stack([_mean_covector(law, s, p) for law, s, p in zip(laws, sums, pi, strict=True)])
    second = np.stack([_second_moment(law, s, p) for law, s, p in zip(laws, sums, pi, strict=True)])
    return GradientLaw(
        policy=policy,
        batch_size=batch_size,
        group_size=group_size,
        true_gradient=truth.gradient,
        true_covectors=truth.gradient_covectors,
        prompt_weights=bandit.prompt_weights,
        mean_covectors=mean / group_size,
        second_moments=second / group_size**2,
    )


def _sum_by_look(estimator: Estimator, laws: list[Classes], truth: Moments, group_size: int) -> list[AdvantageMoments]:
    """Enumerate once for all the prompts that look the same to the kernel."""
    fields = dict(zip(PROMPT_FIELDS, (truth.value, truth.standard_deviation, truth.optimal_baseline), strict=True))
    seen = [np.where(name in estimator.reads, fields[name], np.nan) for name in PROMPT_FIELDS]
    looks: dict[bytes, list[int]] = defaultdict(list)
    for prompt, law in enumerate(laws):
        look = np.concatenate([law.rewards, law.squared_score_norms, [field[prompt] for field in seen]])
        looks[look.tobytes()].append(prompt)
    classes_of_looks = [laws[same[0]].rewards.size for same in looks.values()]
    responses = sum(group_size * count_multisets(n_classes, group_size) for n_classes in classes_of_looks)
    most = max(n_classes * count_multisets(n_classes, group_size) for n_classes in classes_of_looks)
    if responses > MAXIMUM_RESPONSES or most > MAXIMUM_COUNTS:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} at group_size {group_size} needs about 1e{len(str(responses)) - 1} responses "
            f"enumerated, and at most {MAXIMUM_RESPONSES:.0e} are: use simulate_gradients"
        )
    sums: list[AdvantageMoments | None] = [None] * len(laws)
    for same in looks.values():
        first = same[0]
        found = advantage_moments(
            estimator, [laws[m] for m in same], group_size, (seen[0][first], seen[1][first], seen[2][first])
        )
        for prompt, s in zip(same, found, strict=True):
            sums[prompt] = s
    return [s for s in sums if s is not None]


def _mean_covector(law: Classes, sums: AdvantageMoments, pi: Array) -> Array:
    return sums.mean @ (law.responses - pi)


def _second_moment(law: Classes, sums: AdvantageMoments, pi: Array) -> Array:
    """E[sum_ij A_i A_j w_i w_j'] with w = e_k - pi, given that scores are independent within the classes."""
    centre = law.responses - pi
    within = np.diag(sums.squares @ law.responses) - (law.responses.T * sums.squares) @ law.responses
    return within + centre.T @ sums.product @ centre


def gradient_mean(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    kl: KL | None = None,
) -> Array:
    """Return the exact expected estimate, shape (d,); arguments as for `gradient_law`."""
    return gradient_law(bandit, policy, theta, estimator, batch_size=batch_size, group_size=group_size, kl=kl).mean


def gradient_covariance(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    kl: KL | None = None,
) -> Array:
    """Return the exact covariance of the estimate, shape (d, d); arguments as for `gradient_law`."""
    law = gradient_law(bandit, policy, theta, estimator, batch_size=batch_size, group_size=group_size, kl=kl)
    return law.covariance()


def gradient_mse(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    kl: KL | None = None,
) -> float:
    """Return the exact E||estimate - true gradient||^2; arguments as for `gradient_law`."""
    return gradient_law(bandit, policy, theta, estimator, batch_size=batch_size, group_size=group_size, kl=kl).mse
