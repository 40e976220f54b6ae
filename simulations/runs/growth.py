"""How the best group size, and success, move with the responses spent: curves through points, and which of them fits."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

RESAMPLES = 200


class Curve(NamedTuple):
    """A curve ``at(x, a)``, and ``starts(x, y)``, from which the search for its parameters begins."""

    at: Callable
    starts: Callable


def sigmoid(x, a):
    """Return a[0] + a[1]/(1 + exp(-slope (x - a[3])))."""
    return a[0] + a[1] * expit(np.exp(np.minimum(a[2], 5.0)) * (x - a[3]))


SIZES = {
    "constant": Curve(lambda x, a: np.full_like(x, a[0]), lambda x, y: [[y.mean()]]),
    "power law": Curve(lambda x, a: a[0] + a[1] * x, lambda x, y: [[y[0], 0.5]]),
    "sigmoid": Curve(sigmoid, lambda x, y: [[y[0], np.ptp(y), 0.0, m] for m in np.quantile(x, (0.3, 0.6, 0.9))]),
}
"""What log2 of the best group size may be of log2 of the responses: U9's constant, a power law, and P1's sigmoid."""


def fit(curve, x, y, errors):
    """Return the parameters of least weighted squares, and Akaike's criterion with its correction for few points.

    The errors are taken as known, so that the criterion is chi squared, plus 2k, plus 2k(k + 1)/(n - k - 1).
    """

    def misfits(a):
        return (curve.at(x, a) - y) / errors

    found = [least_squares(misfits, start, x_scale="jac", max_nfev=2000) for start in curve.starts(x, y)]
    best = min(found, key=lambda one: one.cost)
    k, n = len(best.x), len(x)
    return best.x, float(2.0 * best.cost + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def best_size(by_size, sizes):
    """Return log2 of the best group size: the vertex of the parabola in log2 G through the highest mean and its neighbours."""
    at = int(np.clip(by_size.argmax(), 1, len(sizes) - 2))
    places, values = np.log2(sizes[at - 1 : at + 2]), by_size[at - 1 : at + 2]
    bend, slope, _ = np.polyfit(places - places[1], values, 2)
    vertex = places[1] - slope / (2.0 * bend) if bend < 0.0 else places[values.argmax()]
    return float(np.clip(vertex, places[0], places[-1]))


def best_sizes(success, sizes, rng):
    """Return log2 of the best group size of success (rates, sizes, draws) at best rates, and of `RESAMPLES` resamples."""
    draws = success.shape[-1]
    counts = rng.multinomial(draws, np.full(draws, 1.0 / draws), size=RESAMPLES)
    shares = np.concatenate([np.ones((1, draws)), counts]) / draws
    return np.array([best_size(by_size, sizes) for by_size in (success @ shares.T).max(axis=0).T])


def saturating(x, y, start):
    """Return P8's curve through successes y at log2 C = x: start + (A - start)/(1 + 2^(b (mid - x))), A at most 1."""

    def at(where, a):
        return start + (a[0] - start) * expit(np.log(2.0) * a[1] * (where - a[2]))

    low, high = [start, 0.0, 0.0], [1.0, 10.0, 60.0]
    begin = [min(0.99, float(y.max()) + 0.02), 1.0, float(np.median(x))]

    def misfits(a):
        return at(x, a) - y

    return partial(at, a=least_squares(misfits, begin, bounds=(low, high)).x)
