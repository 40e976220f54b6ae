"""Exact mean, covariance and mean squared error of any group estimator of the policy gradient, on and off policy."""

from dataclasses import dataclass, field
from math import log10
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers, cached_array
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.exact.classes import Looks, looked_at
from grpo_theory.exact.exchangeability import check_exchangeable
from grpo_theory.exact.group_estimate import Share, means_and_powers, second_moments
from grpo_theory.exact.multisets import (
    MAXIMUM_COUNTS,
    MAXIMUM_RESPONSES,
    Features,
    count_multisets,
    group_moments,
)
from grpo_theory.exact.weights import TokenWeights, token_weights
from grpo_theory.problem import Point, Policy, Problem
from grpo_theory.validation import as_count, as_real_array, check_shape, typed

if TYPE_CHECKING:
    import pandas as pd

_LENGTHS = RESPONSE_FIELDS.index("lengths")


class NotEnumerableError(ValueError):
    """An estimator whose exact moments are not to be had by enumeration; simulation still is."""


@dataclass(frozen=True, eq=False)
class GradientLaw:
    """First two moments of an estimator's gradient at one theta, prompts drawn from f.

    Attributes
    ----------
    policy : Policy
    batch_size, group_size : int
        B prompts, G responses each.
    true_gradient : ndarray, shape (d,)
    gradient_power : float
        Its squared length, and 0 where that is no more than rounding.
    true_covectors : ndarray, shape (M, D)
        c(x) with g(x) = Phi' c(x).
    prompt_weights : ndarray, shape (M,)
    mean_covectors : ndarray, shape (M, D)
        c(x) with E[one group's estimate | x] = Phi' c(x).
    powers : ndarray, shape (M,)
        E[||one group's estimate||^2 | x].
    shares, weights
        What second moments are made from.
    """

    policy: Policy
    batch_size: int
    group_size: int
    true_gradient: Array
    gradient_power: float
    true_covectors: Array
    prompt_weights: Array
    mean_covectors: Array
    powers: Array
    shares: list[Share] = field(repr=False)
    weights: TokenWeights = field(repr=False)

    @cached_array
    def second_moments(self) -> Array:
        """A(x) with E[one group's estimate times its transpose | x] = Phi' A(x) Phi, shape (M, D, D)."""
        return second_moments(self.shares, self.weights) / self.group_size**2

    @property
    def mean(self) -> Array:
        """The expected estimate, shape (d,)."""
        return self.policy.logit_map.adjoint(self.prompt_weights[:, None] * self.mean_covectors)

    @property
    def bias(self) -> Array:
        """The expected estimate less the true gradient, shape (d,)."""
        return self.mean - self.true_gradient

    @property
    def prompt_traces(self) -> Array:
        """Trace of the covariance of one group's estimate given the prompt, shape (M,)."""
        return self.powers - self._squared_norms(self.mean_covectors)

    @property
    def trace(self) -> float:
        """Trace of the covariance of the batch's estimate."""
        mean = self.mean
        return float(self.prompt_weights @ self.powers - mean @ mean) / self.batch_size

    @property
    def power(self) -> float:
        """E||estimate||^2 of the batch's estimate."""
        mean = self.mean
        return self.trace + float(mean @ mean)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the expected estimate and the true gradient; NaN if one of them is 0."""
        lengths = np.linalg.norm(self.mean) * np.linalg.norm(self.true_gradient)
        return float(self.mean @ self.true_gradient / lengths) if lengths > 0.0 else float("nan")

    @property
    def efficiency(self) -> float:
        """(g . E ghat)^2/(||g||^2 E||ghat||^2), between 0 and 1, see `gt.efficiency`; a ValueError where the gradient is 0."""
        return float(efficiency_of(self.true_gradient @ self.mean, self.gradient_power, self.power))

    @property
    def mse(self) -> float:
        """E||estimate - true gradient||^2: trace of the covariance plus squared bias."""
        return self.trace + float(self.bias @ self.bias)

    @property
    def prompt_mses(self) -> Array:
        """E||one group's estimate - g(x)||^2 given the prompt, shape (M,)."""
        return self.prompt_traces + self._squared_norms(self.mean_covectors - self.true_covectors)

    @property
    def prompt_mse(self) -> float:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x)."""
        return float(self.prompt_weights @ self.prompt_mses)

    def to_frame(self) -> "pd.DataFrame":
        """Return a DataFrame: a row a prompt, with its weight and one group's trace of the covariance and mean squared error."""
        import pandas as pd  # slow to import, and not always wanted

        columns = {
            "prompt": np.arange(len(self.prompt_weights)),
            "weight": self.prompt_weights,
            "trace": self.prompt_traces,
            "mse": self.prompt_mses,
        }
        return pd.DataFrame(columns)

    def covariance(self) -> Array:
        """Return the covariance of the batch's estimate, shape (d, d)."""
        second = self.policy.logit_map.congruence(self.prompt_weights[:, None, None] * self.second_moments)
        return (second - np.outer(self.mean, self.mean)) / self.batch_size

    def variance_along(self, directions: ArrayLike) -> Array:
        """Return the variance of <v, estimate> for each direction v, shape (J,), for directions of shape (J, d)."""
        directions = as_real_array("directions", directions, 2)
        check_shape("directions", directions, (len(directions), self.policy.dimension), "(J, d)")
        along = self.policy.logits(directions)
        second = np.einsum("m,jmk,mkl,jml->j", self.prompt_weights, along, self.second_moments, along, optimize=True)
        return (second - (directions @ self.mean) ** 2) / self.batch_size

    def _squared_norms(self, covectors: Array) -> Array:
        return self.policy.logit_map.squared_norms(covectors[:, None])[:, 0]


@typed
def gradient_law(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> GradientLaw:
    """Compute the exact first two moments of an estimator's gradient.

    All multisets of what the kernel can tell apart in a group are enumerated: reward values for a kernel that reads only
    rewards, outcomes otherwise (docs/derivations.md, section 4).  Nothing of size d x d is formed.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,)
        The current policy's parameters: the error is about grad J(theta).
    estimator : str or Estimator
        Any estimator that does not couple groups.
    batch_size, group_size : int
        B prompts, G responses each.
    behaviour : array_like, shape (d,), optional
        The parameters of the policy that sampled; theta if omitted.

    Returns
    -------
    GradientLaw

    Raises
    ------
    NotEnumerableError
        If the estimator couples groups, or needs too many multisets; a ValueError.
    ValueError
        If the kernel is not exchangeable or yields NaN, or an importance ratio is infinite.
    """
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    return law_between(current, sampler, estimator, batch_size=batch_size, group_size=group_size)


@typed
def law_between(current: Point, sampler: Point, estimator: str | Estimator, *, batch_size: int, group_size: int) -> GradientLaw:
    """Compute what `gradient_law` does from two points of one problem, whose tables several estimators can share."""
    estimator = find(estimator)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    estimator.check_defined(group_size, sampler.bandit.values, sampler.policy.paths.lengths)
    if estimator.couples_groups:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} couples groups: use simulate_gradients, exact sums need one group"
        )
    weights = token_weights(current, sampler, estimator)
    partition = looked_at(sampler, estimator.kl, estimator.reads)
    shown = tuple(looks for _, looks, _ in partition)
    _check_enumerable(estimator, shown, group_size)
    check_exchangeable(estimator.advantage, shown, group_size)
    shares = []
    for one, looks, look in partition:
        features = _features(estimator, looks, weights)
        log_p = np.log(one.probabilities)
        sums = group_moments(estimator.advantage, looks, look, log_p, group_size, features, weights.n_features)
        shares.append(Share(one, sums))
    means, powers = means_and_powers(shares, weights, current)
    return GradientLaw(
        policy=current.policy,
        batch_size=batch_size,
        group_size=group_size,
        true_gradient=current.moments.gradient,
        gradient_power=current.moments.known_gradient_power,
        true_covectors=current.moments.gradient_covectors,
        prompt_weights=current.bandit.prompt_weights,
        mean_covectors=means / group_size,
        powers=powers / group_size**2,
        shares=shares,
        weights=weights,
    )


def _check_enumerable(estimator: Estimator, shown: tuple[Looks, ...], group_size: int) -> None:
    sizes = [(*looks.fields.shape[1:], count_multisets(looks.fields.shape[2], group_size)) for looks in shown]
    responses = sum(n_looks * group_size * multisets for n_looks, _, multisets in sizes)
    most = max(n_classes * multisets for _, n_classes, multisets in sizes)
    if responses > MAXIMUM_RESPONSES or most > MAXIMUM_COUNTS:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} at group_size {group_size} needs about 1e{int(log10(responses))} responses "
            f"enumerated, and at most {MAXIMUM_RESPONSES:.0e} are: use simulate_gradients"
        )


def _features(estimator: Estimator, looks: Looks, weights: TokenWeights) -> Features:
    """Return what multiplies the covectors of a class: its advantage, split by sign if clips do, and 1 for a KL term."""

    def features(counts: Integers, advantages: Array) -> Array:
        split = [np.maximum(advantages, 0.0), np.minimum(advantages, 0.0)] if weights.depends_on_sign else [advantages]
        multipliers = np.stack([*split, np.ones_like(advantages)] if weights.drifting else split, axis=-1)
        if estimator.aggregation.pool:
            tokens = looks.fields[_LENGTHS] @ counts.T
            multipliers *= (counts.sum(axis=1) / tokens)[..., None, None]
        return multipliers

    return features


@typed
def gradient_mean(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> Array:
    """Return the exact expected estimate, shape (d,); arguments as for `gradient_law`."""
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).mean


@typed
def gradient_covariance(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> Array:
    """Return the exact covariance of the estimate, shape (d, d); arguments as for `gradient_law`."""
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).covariance()
