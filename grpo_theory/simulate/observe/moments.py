"""Observations of a block to their moments, and the moments of one set of replications after another to those of all."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F2, I1, I2, driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, sum_lanes
from grpo_theory.validation import Array, Integers

AT_ONCE = 16 * WIDTH
"""The replications of which every product is added up before the next: few enough for the first level of cache."""


class Moments(NamedTuple):
    """Moments of rows of observations, for each of n sets of replications.

    Attributes
    ----------
    pairs : ndarray of int64, shape (P, 2)
        Of which rows there are products.
    counts : ndarray of int64, shape (n,)
        The replications of each set.
    means : ndarray, shape (n, rows)
    products : ndarray, shape (n, P)
        Sums of products of deviations from the mean.
    """

    pairs: Integers
    counts: Integers
    means: Array
    products: Array


MOMENTS = record_type(Moments, I2, I1, F2, F2)


def make_moments(pairs: Integers, n_rows: int, n_sets: int = 1) -> Moments:
    """Make room for moments: those of no replications."""
    counts = np.zeros(n_sets, dtype=np.int64)
    return Moments(pairs, counts, np.zeros((n_sets, n_rows)), np.zeros((n_sets, len(pairs))))


def set_of(moments: Moments, n: int) -> Moments:
    """Return the n-th set by itself, as a view."""
    own = slice(n, n + 1)
    return Moments(moments.pairs, moments.counts[own], moments.means[own], moments.products[own])


@stage
def centre_row(observations, row, count, stop):
    """Subtract the mean of a row's first replications, and return it; those from there to whole vectors become 0."""
    for i in range(count, stop):
        observations[row, i] = 0.0
    total = 0.0
    for first in range(0, stop, AT_ONCE):
        part = reals(0.0)
        for i in range(first, min(first + AT_ONCE, stop), WIDTH):
            part = part + load(observations, row, i)
        total += sum_lanes(part)
    mean = total / count
    for i in range(0, stop, WIDTH):
        store(load(observations, row, i) - mean, observations, row, i)
    for i in range(count, stop):
        observations[row, i] = 0.0
    return mean


@stage
def add_products(observations, one, other, first, stop):
    """Return the sum over some replications of the products of two rows.

    In four sums at once, because one would wait for each of its additions to end before the next.
    """
    a, b, c, d = reals(0.0), reals(0.0), reals(0.0), reals(0.0)
    rest = first + (stop - first) // (4 * WIDTH) * (4 * WIDTH)
    for i in range(first, rest, 4 * WIDTH):
        a = a + load(observations, one, i) * load(observations, other, i)
        b = b + load(observations, one, i + WIDTH) * load(observations, other, i + WIDTH)
        c = c + load(observations, one, i + 2 * WIDTH) * load(observations, other, i + 2 * WIDTH)
        d = d + load(observations, one, i + 3 * WIDTH) * load(observations, other, i + 3 * WIDTH)
    for i in range(rest, stop, WIDTH):
        a = a + load(observations, one, i) * load(observations, other, i)
    return sum_lanes((a + b) + (c + d))


@driver(numba.void(F2, numba.int64, numba.int64, MOMENTS))
def fill_moments(observations, count, n, moments):
    """Fill the n-th moments with those of the first replications of observations (rows, R), which become deviations.

    R is a multiple of a vector's lanes.  Two passes, the mean and then the products of deviations from it, in sums of sums.
    """
    pairs, products = moments.pairs, moments.products
    stop = (count + WIDTH - 1) // WIDTH * WIDTH
    moments.counts[n] = count
    for row in range(observations.shape[0]):
        moments.means[n, row] = centre_row(observations, row, count, stop)
    for p in range(pairs.shape[0]):
        products[n, p] = 0.0
    for first in range(0, stop, AT_ONCE):
        for p in range(pairs.shape[0]):
            products[n, p] += add_products(observations, pairs[p, 0], pairs[p, 1], first, min(first + AT_ONCE, stop))


@driver(numba.void(MOMENTS, MOMENTS))
def merge_moments(total, parts):
    """Add parts to the one set of moments `total`, one after another (Chan's update)."""
    pairs, means, products = total.pairs, total.means, total.products
    for n in range(parts.counts.shape[0]):
        own, other = float(total.counts[0]), float(parts.counts[n])
        weight, share = own * other / (own + other), other / (own + other)
        for p in range(pairs.shape[0]):
            i, j = pairs[p, 0], pairs[p, 1]
            apart = (parts.means[n, i] - means[0, i]) * (parts.means[n, j] - means[0, j])
            products[0, p] = products[0, p] + parts.products[n, p] + weight * apart
        for row in range(means.shape[1]):
            means[0, row] += (parts.means[n, row] - means[0, row]) * share
        total.counts[0] += parts.counts[n]
