"""Exact mean, covariance and mean squared error of any group estimator of the policy gradient, on and off policy."""

from collections import defaultdict
from dataclasses import dataclass
from math import log10

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import PROMPT_FIELDS, RESPONSE_FIELDS
from grpo_theory.exact.classes import Classes, classes
from grpo_theory.exact.multisets import (
    MAXIMUM_COUNTS,
    MAXIMUM_RESPONSES,
    Features,
    GroupMoments,
    check_exchangeable,
    count_multisets,
    group_moments,
)
from grpo_theory.exact.seen import Seen, seen_at
from grpo_theory.exact.weights import TokenWeights, token_weights
from grpo_theory.problem import Policy, Problem
from grpo_theory.validation import as_count, as_real_array, check_shape

_LENGTHS = RESPONSE_FIELDS.index("lengths")


class NotEnumerableError(ValueError):
    """An estimator whose exact moments are not to be had by enumeration; simulation still is."""


@dataclass(frozen=True)
class GradientLaw:
    """First two moments of an estimator's gradient at one theta, prompts drawn from f.

    Attributes
    ----------
    policy : Policy
    batch_size, group_size : int
        B prompts, G responses each.
    true_gradient : ndarray, shape (d,)
    true_covectors : ndarray, shape (M, D)
        c(x) with g(x) = Phi' c(x).
    prompt_weights : ndarray, shape (M,)
    mean_covectors : ndarray, shape (M, D)
        c(x) with E[one group's estimate | x] = Phi' c(x).
    second_moments : ndarray, shape (M, D, D)
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
        return self.policy.logit_map.adjoint(self.prompt_weights[:, None] * self.mean_covectors)

    @property
    def bias(self) -> Array:
        """The expected estimate less the true gradient, shape (d,)."""
        return self.mean - self.true_gradient

    @property
    def prompt_traces(self) -> Array:
        """Trace of the covariance of one group's estimate given the prompt, shape (M,)."""
        return self._powers() - self._squared_norms(self.mean_covectors)

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
        return self.prompt_traces + self._squared_norms(self.mean_covectors - self.true_covectors)

    @property
    def prompt_mse(self) -> float:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x)."""
        return float(self.prompt_weights @ self.prompt_mses)

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

    def _powers(self) -> Array:
        return np.einsum("mkl,mkl->m", self.second_moments, self.policy.logit_map.gram())


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
    estimator = find(estimator)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    estimator.check_group_size(group_size)
    if estimator.couples_groups:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} couples groups: use simulate_gradients, exact sums need one group"
        )
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    seen = seen_at(sampler, estimator)
    weights = token_weights(current, sampler, estimator)
    laws = [classes(sampler, seen, prompt, estimator.reads) for prompt in range(problem.bandit.n_prompts)]
    sums = _sum_by_look(estimator, laws, seen, weights, group_size)
    found = [_prompt_moments(law, s, _tables(weights, m)) for m, (law, s) in enumerate(zip(laws, sums, strict=True))]
    return GradientLaw(
        policy=problem.policy,
        batch_size=batch_size,
        group_size=group_size,
        true_gradient=current.moments.gradient,
        true_covectors=current.moments.gradient_covectors,
        prompt_weights=problem.bandit.prompt_weights,
        mean_covectors=np.stack([mean for mean, _ in found]) / group_size,
        second_moments=np.stack([second for _, second in found]) / group_size**2,
    )


def _sum_by_look(
    estimator: Estimator, laws: list[Classes], seen: Seen, weights: TokenWeights, group_size: int
) -> list[GroupMoments]:
    """Enumerate once for all the prompts that look the same to the kernel."""
    fields = zip(PROMPT_FIELDS, seen.prompt_fields, strict=True)
    shown = [np.where(name in estimator.reads, field, np.nan) for name, field in fields]
    looks: dict[bytes, list[int]] = defaultdict(list)
    for prompt, law in enumerate(laws):
        look = np.concatenate([law.fields.reshape(-1), [field[prompt] for field in shown]])
        looks[look.tobytes()].append(prompt)
    _check_enumerable(estimator, [laws[same[0]].probabilities.size for same in looks.values()], group_size)
    n_features = (2 if weights.depends_on_sign else 1) + weights.drifting
    prompt_fields = {same[0]: (shown[0][same[0]], shown[1][same[0]], shown[2][same[0]]) for same in looks.values()}
    check_exchangeable(estimator.advantage, [(laws[first], fields) for first, fields in prompt_fields.items()], group_size)
    sums: dict[int, GroupMoments] = {}
    for same in looks.values():
        first = same[0]
        found = group_moments(
            estimator.advantage,
            [laws[m] for m in same],
            group_size,
            prompt_fields[first],
            _features(estimator, laws[first], weights),
            n_features,
        )
        sums.update(zip(same, found, strict=True))
    return [sums[prompt] for prompt in range(len(laws))]


def _check_enumerable(estimator: Estimator, class_counts: list[int], group_size: int) -> None:
    responses = sum(group_size * count_multisets(n_classes, group_size) for n_classes in class_counts)
    most = max(n_classes * count_multisets(n_classes, group_size) for n_classes in class_counts)
    if responses > MAXIMUM_RESPONSES or most > MAXIMUM_COUNTS:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} at group_size {group_size} needs about 1e{int(log10(responses))} responses "
            f"enumerated, and at most {MAXIMUM_RESPONSES:.0e} are: use simulate_gradients"
        )


def _features(estimator: Estimator, kinds: Classes, weights: TokenWeights) -> Features:
    """Return what multiplies the covectors of a class: its advantage, split by sign if clips do, and 1 for a KL term."""

    def features(counts: Integers, advantages: Array) -> Array:
        split = [np.maximum(advantages, 0.0), np.minimum(advantages, 0.0)] if weights.depends_on_sign else [advantages]
        found = np.stack([*split, np.ones_like(advantages)] if weights.drifting else split, axis=-1)
        if estimator.aggregation.pool:
            tokens = counts @ kinds.fields[_LENGTHS]
            found *= (counts.sum(axis=1) / tokens)[:, None, None]
        return found

    return features


def _tables(weights: TokenWeights, prompt: int) -> Array:
    """Return the covectors that the features multiply, shape (F, K, D)."""
    positive, negative, drift = weights.covectors(prompt)
    tables = [positive, negative] if weights.depends_on_sign else [positive]
    return np.stack([*tables, drift] if weights.drifting else tables)


def _prompt_moments(law: Classes, sums: GroupMoments, tables: Array) -> tuple[Array, Array]:
    """Return E[sum_i x_i] (D,) and E[sum_ij x_i x_j'] (D, D) for x the sum of features times covectors.

    Responses are independent within the classes.
    """
    n_features, _, dimension = tables.shape
    means = np.moveaxis(law.responses @ tables, 0, 1).reshape(-1, dimension)
    squares = np.einsum("rfg,rk->fgk", sums.squares, law.responses)
    own = np.zeros((dimension, dimension))
    for f in range(n_features):
        for g in range(n_features):
            own += (tables[f] * squares[f, g, :, None]).T @ tables[g]
    product = sums.product.reshape(len(means), len(means)).copy()
    for r in range(len(law.responses)):
        block = slice(r * n_features, (r + 1) * n_features)
        product[block, block] -= sums.squares[r]
    return sums.mean.reshape(-1) @ means, own + means.T @ product @ means


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


def gradient_mse(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> float:
    """Return the exact E||estimate - true gradient||^2; arguments as for `gradient_law`."""
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).mse
