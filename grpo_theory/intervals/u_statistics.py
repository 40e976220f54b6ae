"""U-statistics of prompts' rewards and scores, compiled, one group after another (docs/derivations.md, section 8).

Sums run from the first term to the last, as those of `rollout_intervals`, which says what is made of these statistics.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from grpo_theory.jit import compiled, types
from grpo_theory.validation import Array

_CLOSED = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (2, 3))
FILLING = types.void(*_CLOSED, types.float64[:, ::1])
"""Statistics are compiled once, in strict arithmetic, whether rewards and scores are closed to writing or not."""


filling = cache(lambda fill: compiled(fill, FILLING))
"""Compiles; a function is found at once, as a signature is not."""


def by_group(fill: Callable[[Array, Array, Array], None], z: Array, w: Array, width: int) -> Array:
    """Return statistics of groups (..., width) that a function fills for groups one after another."""
    found = np.empty((*z.shape[:-1], width))
    rewards, scores = (np.ascontiguousarray(part).reshape(-1, *part.shape[z.ndim - 1 :]) for part in (z, w))
    filling(fill)(rewards, scores, found.reshape(-1, width))
    return found


def fill_gradients(z, w, found):
    """Fill the leave-one-out estimates (N, J) of groups, from centred rewards z (N, G) and scores w (N, G, J)."""
    groups, size, width = w.shape
    for n in range(groups):
        found[n] = 0.0
        # sum_i z_i w_i / (G - 1).  The z_i add up to 0, so the first score may be taken off all: constant scores give exactly 0.
        for i in range(size):
            for j in range(width):
                found[n, j] += z[n, i] * (w[n, i, j] - w[n, 0, j])
        for j in range(width):
            found[n, j] /= size - 1.0


def gradients(z: Array, w: Array) -> Array:
    """Return the leave-one-out estimates (..., J), from centred rewards z (..., G) and scores w (..., G, J)."""
    return by_group(fill_gradients, z, w, w.shape[-1])


def fill_powers(z, w, found):
    """Fill what `prompt_powers` returns of groups, (N, 3), from centred rewards z (N, G) and scores w (N, G, J)."""
    (groups, size, width), sums = w.shape, np.empty((6, w.shape[2]))
    pairs = size * (size - 1.0)
    triples = pairs * (size - 2.0)
    for n in range(groups):
        reward_power, squared_total, norms, weighted_norms, centred_norms, weighted_centred_norms = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        sums[:] = 0.0
        for i in range(size):
            reward_power += z[n, i] * z[n, i]
            for j in range(width):
                sums[5, j] += w[n, i, j] - w[n, 0, j]
        for i in range(size):
            for j in range(width):
                score, deviation = w[n, i, j], w[n, i, j] - w[n, 0, j] - sums[5, j] / size
                weighted, product = z[n, i] * score, z[n, i] * deviation
                sums[0, j] += product
                sums[1, j] += score * score
                sums[2, j] += weighted * weighted
                sums[3, j] += deviation * deviation
                sums[4, j] += product * product
        for j in range(width):
            squared_total += sums[0, j] * sums[0, j]
            norms += sums[1, j]
            weighted_norms += sums[2, j]
            centred_norms += sums[3, j]
            weighted_centred_norms += sums[4, j]
        # Each mean over distinct responses is a sum over all of them, less the sums in which some coincide (section 8).
        # With h_ij = (w_i - w_j)(z_i - z_j)/2, sum h_ij . h_kl over distinct i, j, k, l is (G-1)(G-2) |T|^2 - G(G-1) Q + R.
        # Here T = sum_i z_i w_i, Q = sum_i |w_i|^2 z_i^2 and R = sum_i |w_i|^2 sum_j z_j^2, with centred w and z.
        four = (size - 1.0) * (size - 2.0) * squared_total - pairs * weighted_centred_norms + centred_norms * reward_power
        found[n, 0] = four / (triples * (size - 3.0))
        # sum ||W_i||^2 (Z_i - Z_j)(Z_i - Z_k) = G(G-1) sum_i ||W_i||^2 z_i^2 - sum_i ||W_i||^2 sum_j z_j^2 (section 8).
        found[n, 1] = (pairs * weighted_norms - norms * reward_power) / triples
        # sum ||W_k||^2 (Z_i - Z_j)^2/2 = (G-1) sum_k ||W_k||^2 sum_i z_i^2 - G sum_k ||W_k||^2 z_k^2 (section 8).
        found[n, 2] = ((size - 1.0) * norms * reward_power - size * weighted_norms) / triples


def powers(z: Array, w: Array) -> Array:
    """Return what `prompt_powers` returns, along the last axis, shape (..., 3)."""
    return by_group(fill_powers, z, w, 3)
