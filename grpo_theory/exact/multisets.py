"""Multisets of classes: all the groups that a kernel can tell apart, and the moments of its advantages over them.

For a group with counts n_1..n_R of the R classes, S_r is the sum of the advantages of class r.  An exact mean or
covariance needs no more than E[S_r], E[S_r S_s] and E[sum of squared advantages of class r]: given the counts, the scores
of a class are independent draws from the class's conditional law.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from math import comb
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from grpo_theory.estimator.kernel import Batch, compile_function
from grpo_theory.estimator.registry import Estimator
from grpo_theory.exact.classes import Classes

Array = NDArray[np.float64]

MAXIMUM_RESPONSES = 10**9
MAXIMUM_COUNTS = 10**8
_ROWS = 1 << 18
_CHECKED = 4096
_DECOYS = ((0.1, 0.7), (0.3, 0.45))
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class AdvantageMoments:
    """Moments of a group's advantages, summed within classes.

    Attributes
    ----------
    mean : ndarray, shape (R,)
        E[S_r].
    product : ndarray, shape (R, R)
        E[S_r S_s].
    squares : ndarray, shape (R,)
        E[sum over the members of class r of A^2].
    """

    mean: Array
    product: Array
    squares: Array


def count_multisets(n_classes: int, group_size: int) -> int:
    """Return the number of multisets of `group_size` members from `n_classes` classes."""
    return comb(group_size + n_classes - 1, group_size)


@lru_cache(maxsize=4)
def multisets(n_classes: int, group_size: int) -> NDArray[np.int64]:
    """List the counts of all multisets, shape (n, R), rows summing to `group_size`."""
    tables = [np.full((1, 1), size) for size in range(group_size + 1)]
    for level in range(2, n_classes + 1):
        sizes = range(group_size + 1) if level < n_classes else (group_size,)
        tables = [
            np.concatenate([np.insert(tables[size - first], 0, first, axis=1) for first in range(size + 1)]) for size in sizes
        ]
    return tables[-1]


def members(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Write out each multiset as a group of class numbers in rising order, shape (n, G)."""
    n, n_classes = counts.shape
    return np.repeat(np.tile(np.arange(n_classes), n), counts.reshape(-1)).reshape(n, -1)


def _sum_moments(counts, log_weights, log_probabilities, advantages, mean, product, squares):
    """Add each multiset's probability times its sums of advantages; returns the largest spread within a class."""
    n, n_classes = counts.shape
    sums = np.empty(n_classes)
    spread = 0.0
    for i in range(n):
        log_p = log_weights[i]
        for r in range(n_classes):
            if counts[i, r] > 0:
                log_p += counts[i, r] * log_probabilities[r]
        p = np.exp(log_p)
        g = 0
        for r in range(n_classes):
            first = advantages[i, g] if counts[i, r] > 0 else 0.0
            total = 0.0
            square = 0.0
            for _ in range(counts[i, r]):
                total += advantages[i, g]
                square += advantages[i, g] ** 2
                gap = abs(advantages[i, g] - first)
                if not gap <= spread * max(1.0, abs(first)):
                    spread = gap / max(1.0, abs(first))
                g += 1
            sums[r] = total
            mean[r] += p * total
            squares[r] += p * square
        for r in range(n_classes):
            for s in range(n_classes):
                product[r, s] += p * sums[r] * sums[s]
    return spread


@cache
def _compiled_sum_moments() -> Any:
    vector, matrix = numba.float64[::1], numba.float64[:, ::1]
    signature = numba.float64(numba.int64[:, ::1], vector, vector, matrix, vector, matrix, vector)
    return compile_function(_sum_moments, signature)


def prompt_batch(
    estimator: Estimator, kinds: Classes, groups: NDArray[np.int64], prompt_fields: tuple[float, float, float]
) -> Batch:
    """Return the batch that shows a kernel all `groups` of class numbers, shape (n, G), as groups of one prompt."""
    n = len(groups)
    value, standard_deviation, optimal_baseline = (np.full(n, field) for field in prompt_fields)
    return Batch(
        rewards=kinds.rewards[groups],
        squared_score_norms=kinds.squared_score_norms[groups],
        lengths=np.ones(groups.shape, dtype=np.int64),
        values=value,
        standard_deviations=standard_deviation,
        optimal_baselines=optimal_baseline,
        parameters=estimator.parameter_array,
    )


def advantages_of(estimator: Estimator, batch: Batch) -> Array:
    """Run the kernel on a batch; raise if it leaves a value that is not finite."""
    advantages = np.full(batch.rewards.shape, np.nan)
    estimator.kernel(batch, advantages)
    bad = ~np.isfinite(advantages).all(axis=1)
    if bad.any():
        b = int(np.argmax(bad))
        raise ValueError(
            f"the kernel of estimator {estimator.name!r} must fill finite advantages, got {advantages[b].tolist()} "
            f"for a group with rewards {batch.rewards[b].tolist()}"
        )
    return advantages


def check_exchangeable(estimator: Estimator, batch: Batch, advantages: Array) -> None:
    """Raise unless the kernel treats responses alike, whatever their places, and each group by itself.

    The check takes groups of the batch (all, or some thousands), the last first, rotates the responses in each, and puts them
    between groups of another prompt: other rewards, other score norms, other fields of the prompt.
    """
    picked = Batch._make([*(_picked(field) for field in batch[:-1]), batch.parameters])
    expected = _picked(advantages)
    allowed = _TOLERANCE * np.maximum(1.0, np.abs(advantages).max())
    for shift, scale in _DECOYS:  # two, for any one of them leaves some value as it is
        decoys = [field if field.dtype.kind == "i" else shift + scale * field for field in picked[:-1]]
        fields = (np.concatenate([d, p, d]) for d, p in zip(decoys, picked[:-1], strict=True))
        found = advantages_of(estimator, Batch._make([*fields, batch.parameters]))[len(expected) : 2 * len(expected)]
        if (np.abs(found - expected) > allowed).any():
            raise ValueError(
                f"estimator {estimator.name!r} must give each response an advantage that does not depend on its place in the "
                "group, nor on other groups, for its exact moments to be enumerated; if it couples groups, register it with "
                "couples_groups=True and simulate it"
            )


def _picked(array: NDArray) -> NDArray:
    """Some thousands of the groups, the last first, their responses rotated by one place."""
    some = array[:: -max(1, len(array) // _CHECKED)]
    return np.ascontiguousarray(np.roll(some, 1, axis=1) if array.ndim == 2 else some)


def advantage_moments(
    estimator: Estimator, laws: list[Classes], group_size: int, prompt_fields: tuple[float, float, float]
) -> list[AdvantageMoments]:
    """Sum the advantages' moments over all multisets, for prompts whose classes look the same to the kernel.

    Parameters
    ----------
    estimator : Estimator
        One that does not couple groups.
    laws : list of Classes
        One a prompt; they differ in nothing that the kernel reads, only in the classes' probabilities.
    group_size : int
        The number G of responses.
    prompt_fields : tuple of float
        Value, standard deviation and optimal baseline as the kernel sees them.

    Returns
    -------
    list of AdvantageMoments
        One a prompt.

    Raises
    ------
    ValueError
        If the kernel is not exchangeable or leaves a value that is not finite.
    """
    n_classes = laws[0].rewards.size
    counts = multisets(n_classes, group_size)
    sums = [AdvantageMoments(np.zeros(n_classes), np.zeros((n_classes, n_classes)), np.zeros(n_classes)) for _ in laws]
    step = max(2, _ROWS // group_size)
    for start in range(0, len(counts), step):
        part = counts[start : start + step]
        batch = prompt_batch(estimator, laws[0], members(part), prompt_fields)
        advantages = advantages_of(estimator, batch)
        check_exchangeable(estimator, batch, advantages)
        log_weights = gammaln(group_size + 1.0) - gammaln(part + 1.0).sum(axis=1)
        for law, moments in zip(laws, sums, strict=True):
            spread = _compiled_sum_moments()(
                part, log_weights, np.log(law.probabilities), advantages, moments.mean, moments.product, moments.squares
            )
            if spread > _TOLERANCE:
                raise ValueError(
                    f"estimator {estimator.name!r} must give equal advantages to responses that it cannot tell apart"
                )
    return sums
