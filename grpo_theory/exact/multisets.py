"""Multisets of classes: all the groups that a kernel can tell apart, and the moments of its advantages over them.

In a group with counts n_1..n_R of the R classes, a response of class r adds F features of its class to the estimate. Each is
multiplied by a covector of the response. The features are its advantage, or the advantage split by its sign, and 1 for what is
added whatever the advantage.

Let S_rf be the sum of feature f over class r. Given the counts, the responses of a class are independent draws from the class's
conditional law. An exact mean or covariance therefore needs only E[S_rf], E[S_rf S_sg] and E[sum over class r of the products of
its features].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numba
import numpy as np
from scipy.special import gammaln

from grpo_theory.arrays import Array, Integers, read_only
from grpo_theory.compiler import F1, F2, F3, F4, F5, I1, READONLY_I2, function_value
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact.classes import Looks

MAXIMUM_RESPONSES = 10**8
MAXIMUM_COUNTS = 10**8
_ROWS = 1 << 18
KEPT = 1 << 14
"""The most numbers of what is kept of a kernel, in case it is asked for the same again."""
LAWS_KEPT = 256
"""Of so many kernels, looks and group sizes: a curve over ten sizes of a dozen estimators, asked for again at each length."""
TOLERANCE = 1e-9
"""The difference of advantages that counts as rounding, relative to the larger of 1 and their size."""

Features = Callable[[Integers, Array], Array]
"""``features(counts, advantages)`` turns counts (n, R) and advantages by look, (L, n, R), into features (L, n, R, F)."""


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Moments of a group's features at S prompts, summed within classes.

    Attributes
    ----------
    mean : ndarray, shape (S, R, F)
        E[S_rf].
    product : ndarray, shape (S, R, F, R, F)
        E[S_rf S_sg].
    squares : ndarray, shape (S, R, F, F)
        E[sum over the members of class r of feature f times feature g].
    """

    mean: Array
    product: Array
    squares: Array

    @classmethod
    def zeros(cls, n_prompts: int, n_classes: int, n_features: int) -> "GroupMoments":
        """Return moments to which multisets are to be added."""
        shape = n_classes, n_features
        return cls(*(np.zeros((n_prompts, *rest)) for rest in (shape, shape + shape, (*shape, n_features))))


def count_multisets(n_classes: int, group_size: int) -> int:
    """Return the number of multisets of `group_size` members from `n_classes` classes."""
    return comb(group_size + n_classes - 1, group_size)


@lru_cache(maxsize=4)
def multisets(n_classes: int, group_size: int) -> Integers:
    """List the counts of all multisets, shape (n, R), rows summing to `group_size`."""
    if n_classes == 1:
        return read_only(np.full((1, 1), group_size))
    tables = [_of_two(size) for size in (range(group_size + 1) if n_classes > 2 else (group_size,))]
    for level in range(3, n_classes + 1):
        sizes = range(group_size + 1) if level < n_classes else (group_size,)
        # The multisets of one class more: the new class has `first` members, and the others are a multiset of the rest.
        tables = [
            np.concatenate([np.insert(tables[size - first], 0, first, axis=1) for first in range(size + 1)]) for size in sizes
        ]
    return read_only(tables[-1])


def _of_two(group_size: int) -> Integers:
    first = np.arange(group_size + 1)
    return np.stack([first, group_size - first], axis=1)


def members(counts: Integers) -> Integers:
    """Write out each multiset as a group of class numbers in rising order, shape (n, G)."""
    n, n_classes = counts.shape
    return np.repeat(np.tile(np.arange(n_classes), n), counts.reshape(-1)).reshape(n, -1)


@function_value(numba.float64(READONLY_I2, F2, F2))
def class_advantages(counts, advantages, by_class):
    """Fill in the advantage of each class (n, R), 0 for classes without members; returns the largest spread within a class."""
    n, n_classes = counts.shape
    spread = 0.0
    for i in range(n):
        g = 0
        for r in range(n_classes):
            first = advantages[i, g] if counts[i, r] > 0 else 0.0
            by_class[i, r] = first
            for _ in range(counts[i, r]):
                gap = abs(advantages[i, g] - first)
                # "not <=" and not ">": a gap that is NaN must count as a spread, and NaN fails every comparison.
                if not gap <= spread * max(1.0, abs(first)):
                    spread = gap / max(1.0, abs(first))
                g += 1
    return spread


@function_value(numba.void(READONLY_I2, F1, F2, I1, F4, F3, F5, F4))
def add_moments(counts, log_weights, log_probabilities, look, features, mean, product, squares):
    """Add each multiset's probability at each prompt times its sums of the features (L, n, R, F) of the prompt's look."""
    _, n, n_classes, n_features = features.shape
    sums = np.empty((n_classes, n_features))
    for m in range(look.size):
        for i in range(n):
            log_p = log_weights[i]
            for r in range(n_classes):
                if counts[i, r] > 0:
                    log_p += counts[i, r] * log_probabilities[m, r]
            p = np.exp(log_p)
            for r in range(n_classes):
                for f in range(n_features):
                    feature = features[look[m], i, r, f]
                    sums[r, f] = counts[i, r] * feature
                    mean[m, r, f] += p * sums[r, f]
                    for g in range(n_features):
                        squares[m, r, f, g] += p * counts[i, r] * feature * features[look[m], i, r, g]
            for r in range(n_classes):
                for f in range(n_features):
                    for s in range(n_classes):
                        for g in range(n_features):
                            product[m, r, f, s, g] += p * sums[r, f] * sums[s, g]


def batch_of(advantage: Advantage, looks: Looks, groups: Integers) -> Batch:
    """Return the batch that shows a kernel all `groups` of class numbers, shape (n, G), look after look."""
    rewards, norms, lengths = (np.ascontiguousarray(field[:, groups].reshape(-1, groups.shape[1])) for field in looks.fields)
    # A length that is not read is NaN in a look, which integers do not have; the kernel is shown 1.
    counted = np.where(np.isnan(lengths), 1.0, lengths).astype(np.int64)
    value, deviation, baseline = looks.prompt_fields.repeat(len(groups), axis=1)
    return Batch(rewards, norms, counted, value, deviation, baseline, advantage.parameter_array)


class NotFiniteError(ValueError):
    """A kernel left a value that is not finite."""


def advantages_of(advantage: Advantage, batch: Batch) -> Array:
    """Run the kernel on a batch; raise if it leaves a value that is not finite."""
    advantages = np.full(batch.rewards.shape, np.nan)
    advantage.kernel(batch, advantages)
    bad = ~np.isfinite(advantages).all(axis=1)
    if bad.any():
        b = int(np.argmax(bad))
        raise NotFiniteError(
            f"the kernel of estimator {advantage.name!r} must fill finite advantages, got {advantages[b].tolist()} "
            f"for a group with rewards {batch.rewards[b].tolist()}"
        )
    return advantages


def group_moments(
    advantage: Advantage,
    looks: Looks,
    look: Integers,
    log_probabilities: Array,
    group_size: int,
    features: Features,
    n_features: int,
) -> GroupMoments:
    """Sum the features' moments over all multisets, for prompts that have equally many classes.

    Parameters
    ----------
    advantage : Advantage
        One that does not couple groups.
    looks : Looks
    look : ndarray of int64, shape (S,)
        The number of each prompt's look.
    log_probabilities : ndarray, shape (S, R)
        The logs of the classes' probabilities.
    group_size : int
        The number G of responses.
    features : callable
        See `Features`.
    n_features : int
        F.

    Returns
    -------
    GroupMoments

    Raises
    ------
    ValueError
        If the kernel tells members of a class apart, or leaves a value that is not finite.
    """
    n_prompts, n_classes = log_probabilities.shape
    moments = GroupMoments.zeros(n_prompts, n_classes, n_features)
    for counts, advantages in class_tables(advantage, looks, group_size):
        multipliers = np.ascontiguousarray(features(counts, advantages))
        # Logs of the multinomial coefficients, because those of some hundred responses overflow a double.
        log_weights = gammaln(group_size + 1.0) - gammaln(counts + 1.0).sum(axis=1)
        add_moments(counts, log_weights, log_probabilities, look, multipliers, moments.mean, moments.product, moments.squares)
    return moments


def class_tables(advantage: Advantage, looks: Looks, group_size: int) -> Iterator[tuple[Integers, Array]]:
    """Yield counts of multisets (n, R) and what the kernel gives each class in them by look, (L, n, R), part by part."""
    n_looks, n_classes = looks.fields.shape[1:]
    n_counts = count_multisets(n_classes, group_size)
    # What is kept is made at once: its groups are written out, of which there must not be too many.
    if n_looks * n_classes * n_counts <= KEPT and n_looks * group_size * n_counts <= _ROWS:
        yield multisets(n_classes, group_size), _kept_table(advantage, looks, group_size)
        return
    counts = multisets(n_classes, group_size)
    step = max(2, _ROWS // (group_size * n_looks))
    for start in range(0, len(counts), step):
        part = counts[start : start + step]
        yield part, class_table(advantage, looks, part)


@lru_cache(maxsize=LAWS_KEPT)
def _kept_table(advantage: Advantage, looks: Looks, group_size: int) -> Array:
    return read_only(class_table(advantage, looks, multisets(looks.fields.shape[2], group_size)))


def class_table(advantage: Advantage, looks: Looks, counts: Integers) -> Array:
    """Return what the kernel gives each class in the multisets with these counts (n, R), by look, (L, n, R)."""
    n_looks, n_classes = looks.fields.shape[1:]
    advantages = advantages_of(advantage, batch_of(advantage, looks, members(counts)))
    by_class = np.empty((n_looks * len(counts), n_classes))
    if class_advantages(np.tile(counts, (n_looks, 1)), advantages, by_class) > TOLERANCE:
        raise ValueError(f"estimator {advantage.name!r} must give equal advantages to responses that it cannot tell apart")
    return by_class.reshape(n_looks, *counts.shape)
