"""Covectors of groups to the squared errors of their batches, one driver for each way of adding up a batch.

The estimate of a batch is (1/B) sum_b Phi_b' c_b, with c_b the covector of group b.  Of each replication the drivers fill in
`observations` (E, S, 2 + J, STRIP): row 0 is the squared error of the batch's estimate about g, row 1 the mean of its groups'
squared errors about their g(x), and the J others the estimate along the directions.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compilation import F1, F2, F4, compile_function, record_type, stage
from grpo_theory.simulate.covectors import COVECTORS, look_up_lanes
from grpo_theory.simulate.strip import STRIP


class Truth(NamedTuple):
    """What the observations are measured against: the problem at theta.

    Attributes
    ----------
    facts : ndarray, shape (R, M)
        Of each prompt: the logits of the directions, J D rows, and then what the driver asks for.
    array : ndarray of two dimensions
        A table that the driver understands.
    target : ndarray of one dimension
        ||g||^2, or g.
    """

    facts: Array
    array: Array
    target: Array


TRUTH = record_type(Truth, F2, F2, F1)
I3 = numba.int64[:, :, ::1]


@stage
def add_along(covectors, facts, observations):
    """Add a group to the estimate along the J directions, whose logits are the first rows of `facts`."""
    n_logits = covectors.shape[0]
    for i in range(observations.shape[0] - 2):
        for d in range(n_logits):
            for j in range(STRIP):
                observations[2 + i, j] += covectors[d, j] * facts[i * n_logits + d, j]


@stage
def divide(observations, divisors):
    """Divide each of the observations (2 + J, STRIP), the first two by numbers of their own and the others by the second."""
    for i in range(observations.shape[0]):
        for j in range(STRIP):
            observations[i, j] /= divisors[min(i, 1)]


# ---- maps where ||Phi' c||^2 is |c|^2 times a number of the prompt; the last 2 D facts are the covectors and the logits of g


@stage
def add_alone(covectors, facts, own, square, batch_size, observations):
    """Add what a group contributes by itself: to B times the mean squared error about g(x), and to B^2 times that about g.

    The latter is `square` (STRIP,) times its own square, less 2 B times its product with g; `own` are the prompts' numbers.
    """
    n_logits = covectors.shape[0]
    first = facts.shape[0] - 2 * n_logits
    twice = 2.0 * batch_size
    for d in range(n_logits):
        for j in range(STRIP):
            covector = covectors[d, j]
            error = covector - facts[first + d, j]
            observations[0, j] += covector * (square[j] * covector - twice * facts[first + n_logits + d, j])
            observations[1, j] += own[j] * error * error


@stage
def add_product(first, second, weights, times, found):
    """Add the products of two covectors (D, STRIP), weighed by weights (STRIP,) so many times."""
    n_logits = first.shape[0]
    whole = n_logits // 4 * 4
    for d in range(0, whole, 4):
        for j in range(STRIP):
            total = 0.0
            for h in range(4):
                total += first[d + h, j] * second[d + h, j]
            found[j] += times * weights[j] * total
    for d in range(whole, n_logits):
        for j in range(STRIP):
            found[j] += times * weights[j] * (first[d, j] * second[d, j])


@stage
def relate(prompts, b, inner, weights):
    """Weigh the group with those before it and itself, (b + 1, STRIP), by inner products (M, M).

    Without any, the prompts are orthogonal: 1 where they are the same.
    """
    for c in range(b + 1):
        if inner.shape[0] == 0:
            for j in range(STRIP):
                weights[c, j] = 1.0 if prompts[c, j] == prompts[b, j] else 0.0
        else:
            for j in range(STRIP):
                weights[c, j] = inner[np.uintp(prompts[b, j]), np.uintp(prompts[c, j])]


def fill_errors_by_pairs(truth, prompts, covectors, observations):
    """Add up a batch as the products of all pairs of its groups; `array` has inner products of prompts, or is empty."""
    n_estimators, n_strips, batch_size = covectors.shape[:3]
    facts, weights = np.empty((truth.facts.shape[0], STRIP)), np.empty((batch_size, STRIP))
    divisors = np.array([float(batch_size * batch_size), float(batch_size)])
    observations[:] = 0.0
    for s in range(n_strips):
        for e in range(n_estimators):
            for j in range(STRIP):
                observations[e, s, 0, j] = truth.target[0] * divisors[0]
        for b in range(batch_size):
            look_up_lanes(truth.facts, prompts[s, b], facts)
            relate(prompts[s], b, truth.array, weights)
            for e in range(n_estimators):
                own, found = covectors[e, s, b], observations[e, s]
                add_alone(own, facts, weights[b], weights[b], batch_size, found)
                add_along(own, facts, found)
                for c in range(b):
                    add_product(own, covectors[e, s, c], weights[c], 2.0, found[0])
        for e in range(n_estimators):
            divide(observations[e, s], divisors)


def fill_errors_by_prompt(truth, prompts, covectors, observations):
    """Add up a batch prompt by prompt, and then the products of the prompts; `array` has their inner products (M, M)."""
    n_estimators, n_strips, batch_size, n_logits, _ = covectors.shape
    n_prompts = truth.array.shape[0]
    facts, own, ones = np.empty((truth.facts.shape[0], STRIP)), np.empty(STRIP), np.ones(STRIP)
    totals, nothing = np.empty((n_prompts, n_logits, STRIP)), np.zeros(STRIP)
    divisors = np.array([float(batch_size * batch_size), float(batch_size)])
    observations[:] = 0.0
    for s in range(n_strips):
        for e in range(n_estimators):
            found = observations[e, s]
            totals[:] = 0.0
            found[0] = truth.target[0] * divisors[0]
            for b in range(batch_size):
                look_up_lanes(truth.facts, prompts[s, b], facts)
                for j in range(STRIP):
                    here = np.uintp(prompts[s, b, j])
                    own[j] = truth.array[here, here]
                    for d in range(n_logits):
                        totals[here, d, j] += covectors[e, s, b, d, j]
                add_alone(covectors[e, s, b], facts, own, nothing, batch_size, found)
                add_along(covectors[e, s, b], facts, found)
            for m in range(n_prompts):
                for n in range(m + 1):
                    times = truth.array[m, n] if n == m else 2.0 * truth.array[m, n]
                    if times != 0.0:
                        add_product(totals[m], totals[n], ones, times, found[0])
            divide(found, divisors)


# ---- any other map, by its features: the last (D + 1) d facts are those of each edge, and g(x)


@stage
def add_gradient(covectors, facts, sums, gradient, observations):
    """Add a group's gradient to the sums of the batch (d, STRIP), and its squared error about g(x); `gradient` is room."""
    n_logits, dimension = covectors.shape[0], sums.shape[0]
    first = facts.shape[0] - (n_logits + 1) * dimension
    for i in range(dimension):
        for j in range(STRIP):
            gradient[j] = 0.0
        for d in range(n_logits):
            for j in range(STRIP):
                gradient[j] += covectors[d, j] * facts[first + d * dimension + i, j]
        for j in range(STRIP):
            error = gradient[j] - facts[first + n_logits * dimension + i, j]
            sums[i, j] += gradient[j]
            observations[1, j] += error * error


def fill_errors_by_features(truth, prompts, covectors, observations):
    """Add up a batch as a gradient of d dimensions."""
    n_estimators, n_strips, batch_size = covectors.shape[:3]
    dimension = truth.target.shape[0]
    facts, gradient = np.empty((truth.facts.shape[0], STRIP)), np.empty(STRIP)
    sums = np.empty((n_estimators, dimension, STRIP))
    divisors = np.array([1.0, float(batch_size)])
    observations[:] = 0.0
    for s in range(n_strips):
        sums[:] = 0.0
        for b in range(batch_size):
            look_up_lanes(truth.facts, prompts[s, b], facts)
            for e in range(n_estimators):
                add_gradient(covectors[e, s, b], facts, sums[e], gradient, observations[e, s])
                add_along(covectors[e, s, b], facts, observations[e, s])
        for e in range(n_estimators):
            for i in range(dimension):
                for j in range(STRIP):
                    error = sums[e, i, j] / batch_size - truth.target[i]
                    observations[e, s, 0, j] += error * error
            divide(observations[e, s], divisors)


SIGNATURE = numba.void(TRUTH, I3, COVECTORS, F4)


@cache
def compiled_errors(driver: Any) -> Any:
    """Compile one of the drivers above, or read it from the cache."""
    return compile_function(driver, SIGNATURE)
