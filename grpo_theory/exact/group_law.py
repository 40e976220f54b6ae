"""Exact mean, covariance and mean squared error of any group estimator of the policy gradient, on and off policy."""

from math import log10
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.exact.carried import carried_moments
from grpo_theory.exact.classes import Looks, looked_at, looks_of
from grpo_theory.exact.exchangeability import check_exchangeable
from grpo_theory.exact.law import GradientLaw, NotEnumerableError
from grpo_theory.exact.multisets import (
    MAXIMUM_COUNTS,
    MAXIMUM_RESPONSES,
    Features,
    count_multisets,
    group_moments,
)
from grpo_theory.exact.score_moments import ScoreMoments, Share, listed_moments, means_and_powers
from grpo_theory.exact.weights import token_weights
from grpo_theory.problem import ChainPoint, Point, Problem
from grpo_theory.validation import as_count, typed

_LENGTHS = RESPONSE_FIELDS.index("lengths")


@typed
def gradient_law(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
    old: ArrayLike | None = None,
) -> GradientLaw:
    """Compute the exact first two moments of an estimator's gradient.

    All multisets of what the kernel can tell apart in a group are enumerated (docs/derivations.md, section 4).  These are
    reward values for a kernel that reads only rewards, and outcomes otherwise.  Nothing of size d x d is formed.

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
    old : array_like, shape (d,), optional
        The parameters of the trainer's policy at the start of the update, if that policy is not the one that sampled.
        Importance ratios are of theta over `old`, and the estimator's mismatch is of `old` over `behaviour`.

    Returns
    -------
    GradientLaw

    Raises
    ------
    NotEnumerableError
        If the estimator couples groups, or needs too many multisets; a ValueError.
    ValueError
        If the kernel is not exchangeable or yields NaN, or an importance ratio is infinite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> law = gt.gradient_law(problem, problem.theta, "grpo", batch_size=8, group_size=4)
    >>> round(law.mse, 4), round(law.efficiency, 3)
    (0.012, 0.106)
    """
    current = problem.at(theta)
    sampled = current.theta if behaviour is None else problem.policy.check_theta(behaviour, "behaviour")
    # A policy's own draws are on policy, whether it is named or not: ratios are 1 whatever they are made of.
    sampler = current if np.array_equal(sampled, current.theta) else problem.at(sampled)
    start = _start(problem, current, sampler, old)
    return law_between(current, sampler, estimator, batch_size=batch_size, group_size=group_size, old=start)


def _start(problem: Problem, current: Point, sampler: Point, old: ArrayLike | None) -> Point | None:
    """Return the point at which an update started, `current` itself if it has its parameters; None if it is the sampler's."""
    theta = sampler.theta if old is None else problem.policy.check_theta(old, "old")
    if np.array_equal(theta, sampler.theta):
        return None
    return current if np.array_equal(theta, current.theta) else problem.at(theta)


@typed
def law_between(
    current: Point,
    sampler: Point,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    old: Point | None = None,
) -> GradientLaw:
    """Compute `gradient_law` from two points of one problem, so that several estimators share the points' tables.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> now, before = problem.at(problem.theta), problem.at(0.9 * problem.theta)
    >>> ratio = gt.compose("reinforce_with_ratio_example", advantage="rloo", ratio="trajectory")
    >>> law = gt.exact.law_between(now, before, ratio, batch_size=8, group_size=4)
    >>> round(law.efficiency, 2)
    0.11
    """
    if isinstance(estimator, list | tuple):
        raise TypeError(
            f"estimator must be one name or Estimator, got {len(estimator)} in a {type(estimator).__name__}. "
            "Ask for each of them, as in [gt.efficiency(problem, theta, one, ...) for one in names]"
        )
    estimator = find(estimator).at_lengths(current.policy.lengths)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    estimator.check_defined(group_size, sampler.bandit.values, sampler.policy.lengths)
    if estimator.couples_groups:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} couples groups: use simulate_gradients, exact sums need one group"
        )
    scores = scores_of(current, sampler, estimator, old)
    shown = tuple(looks for _, looks, _ in scores.by_look)
    _check_enumerable(estimator, shown, group_size)
    check_exchangeable(estimator.advantage, shown, group_size)
    shares = []
    for moments, looks, look in scores.by_look:
        features, log_p = _features(estimator, looks, scores), np.log(moments.classes.probabilities)
        n_features = moments.means.shape[2]
        shares.append(Share(moments, group_moments(estimator.advantage, looks, look, log_p, group_size, features, n_features)))
    means, powers = means_and_powers(shares, current.tangent)
    return GradientLaw(
        logit_map=current.tangent,
        batch_size=batch_size,
        group_size=group_size,
        true_gradient=current.moments.gradient,
        gradient_power=current.moments.known_gradient_power,
        true_covectors=current.moments.gradient_covectors,
        prompt_weights=current.bandit.prompt_weights,
        mean_covectors=means / group_size,
        powers=powers / group_size**2,
        shares=shares,
    )


class Scores(NamedTuple):
    """Score moments with the looks of their prompts, and what features multiply them."""

    by_look: list[tuple[ScoreMoments, Looks, Integers]]
    depends_on_sign: bool
    drifting: bool


def scores_of(current: Point, sampler: Point, estimator: Estimator, old: Point | None = None) -> Scores:
    """Return the score moments of an estimator, by what its kernel tells apart: by reward, if it reads only rewards.

    They are carried along the tokens of a chain, and averaged over responses that are listed.
    """
    if isinstance(current, ChainPoint) and isinstance(sampler, ChainPoint):
        if old is not None:
            raise ValueError("old must be left out for a TokenChain: laws of three policies are computed of trees and bandits")
        carried, split = carried_moments(current, sampler, estimator)
        known = sampler.moments.known_to_oracles
        return Scores([(one, *looks_of(one.classes, known, estimator.reads)) for one in carried], split, False)
    weights, products = token_weights(current, sampler, estimator, old), current.token_products
    partition = looked_at(sampler, estimator.kl, estimator.reads)
    listed = [(listed_moments(kinds, weights, products), looks, look) for kinds, looks, look in partition]
    return Scores(listed, weights.depends_on_sign, weights.drifting)


def _check_enumerable(estimator: Estimator, shown: tuple[Looks, ...], group_size: int) -> None:
    sizes = [(*looks.fields.shape[1:], count_multisets(looks.fields.shape[2], group_size)) for looks in shown]
    responses = sum(n_looks * group_size * multisets for n_looks, _, multisets in sizes)
    most = max(n_classes * multisets for _, n_classes, multisets in sizes)
    if responses > MAXIMUM_RESPONSES or most > MAXIMUM_COUNTS:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} at group_size {group_size} needs about 1e{int(log10(responses))} responses "
            f"enumerated, and at most {MAXIMUM_RESPONSES:.0e} are: use simulate_gradients"
        )


def _features(estimator: Estimator, looks: Looks, scores: Scores) -> Features:
    """Return what multiplies the covectors of a class: its advantage, split by sign if clips do, and 1 for a KL term."""

    def features(counts: Integers, advantages: Array) -> Array:
        split = [np.maximum(advantages, 0.0), np.minimum(advantages, 0.0)] if scores.depends_on_sign else [advantages]
        multipliers = np.stack([*split, np.ones_like(advantages)] if scores.drifting else split, axis=-1)
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
    """Return the exact expected estimate, shape (d,); arguments as for `gradient_law`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> gradient = gt.exact.gradient(problem, problem.theta)
    >>> [bool(np.allclose(gt.gradient_mean(problem, problem.theta, name, **sizes), gradient)) for name in ("rloo", "dr_grpo")]
    [True, False]
    """
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
    """Return the exact covariance of the estimate, shape (d, d); arguments as for `gradient_law`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> gt.gradient_covariance(problem, problem.theta, "rloo", batch_size=8, group_size=4).shape
    (5, 5)
    """
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).covariance()
