"""Pilots whose prompts differ in gradient length by a law with heavy tails, and the exact constants of the error.

A prompt has a success rate p of the law beta(1, 1.5), a length L and a direction u. A response succeeds with probability p; its
score is W = L (A (Z - p) u + e), with e normal of variance 1 over all coordinates. So W has mean 0 and the prompt's gradient is L
A p (1 - p) u. The constants need only moments of p and L.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import exp, gamma, pi, sqrt

import numpy as np
from scipy.special import roots_jacobi

import grpo_theory as gt
from grpo_theory.arrays import Array

RATES = (1.0, 1.5)
SIGNAL, DIRECTIONS, ALIGNED = 1.5, 8, 0.5
"""A; the number of coordinates; the component of every prompt's direction along one of them. The others' mean is 0."""
NODES = 32
RARE, LONG = 0.05, 4.0
"""One prompt in 20 has a gradient four times as long."""
SIZES = (4, 64)

Lengths = Callable[[np.random.Generator, int], Array]


@dataclass(frozen=True)
class LengthLaw:
    """A law of gradient lengths.

    Attributes
    ----------
    draw : callable
        Takes a generator and how many to draw.
    mean, square : float
        The means of L and of its square.
    signal : bool
        Whether L multiplies only what reward and score share, so that lengths do not cancel in ratios of errors.
    """

    draw: Lengths
    mean: float
    square: float
    signal: bool = False


def lognormal(spread: float, signal: bool = False) -> LengthLaw:
    """Return the law of exp(spread N), N standard normal."""
    return LengthLaw(lambda rng, size: rng.lognormal(0.0, spread, size), exp(spread**2 / 2.0), exp(2.0 * spread**2), signal)


LAWS = {
    "equal": LengthLaw(lambda rng, size: np.ones(size), 1.0, 1.0),
    "lognormal 0.7": lognormal(0.7),
    "lognormal 0.7, signal": lognormal(0.7, signal=True),
    "lognormal 1": lognormal(1.0),
    "exponential": LengthLaw(lambda rng, size: rng.exponential(1.0, size), 1.0, 2.0),
    "half t, 5 degrees": LengthLaw(
        lambda rng, size: np.abs(rng.standard_t(5.0, size)), sqrt(5.0 / pi) * gamma(3.0) / (2.0 * gamma(2.5)), 5.0 / 3.0
    ),
    "rare": LengthLaw(
        lambda rng, size: np.where(rng.random(size) < RARE, LONG, 1.0), 1.0 + RARE * (LONG - 1.0), 1.0 + RARE * (LONG**2 - 1.0)
    ),
}
"""Light and heavy tails. Of "rare" 21% of pilots of 30 prompts have no long gradient at all."""


@cache
def rate_nodes() -> tuple[Array, Array]:
    """Return success rates and weights by which polynomials are averaged over their law exactly."""
    nodes, weights = roots_jacobi(NODES, RATES[1] - 1.0, RATES[0] - 1.0)
    return (1.0 + nodes) / 2.0, weights / weights.sum()


@cache
def exact_law(name: str) -> gt.GroupSizeLaw:
    """Return the exact c1, c2 and c3."""
    law = LAWS[name]
    p, weights = rate_nodes()
    variance, fourth = weights @ (p * (1.0 - p)), weights @ (p * (1.0 - p) ** 4 + (1.0 - p) * p**4)
    square = weights @ (p * (1.0 - p)) ** 2
    signal, noise = SIGNAL**2 * law.square, 1.0 if law.signal else law.square
    power = signal * square
    mean = (SIGNAL * law.mean * ALIGNED * variance) ** 2
    c2 = signal * fourth + noise * variance - power
    return gt.GroupSizeLaw(float(power - mean), float(c2), float(signal * square + noise * variance + power))


def draw_pilot(name: str, prompts: int, ragged: bool, rng: np.random.Generator) -> tuple[gt.RaggedRollouts, Array]:
    """Draw a pilot with 4 to 64 responses a prompt, each number as likely, or with 8; return it and each prompt's length."""
    law = LAWS[name]
    sizes = rng.integers(SIZES[0], SIZES[1] + 1, prompts) if ragged else np.full(prompts, 8)
    index = np.repeat(np.arange(prompts), sizes)
    rate, lengths = rng.beta(*RATES, prompts)[index], law.draw(rng, prompts)
    length = lengths[index]
    rest = rng.standard_normal((prompts, DIRECTIONS - 1))
    rest *= sqrt(1.0 - ALIGNED**2) / np.linalg.norm(rest, axis=1, keepdims=True)
    direction = np.hstack([np.full((prompts, 1), ALIGNED), rest])[index]
    rewards = (rng.random(index.size) < rate).astype(np.float64)
    noise = rng.standard_normal((index.size, DIRECTIONS)) / sqrt(DIRECTIONS)
    shared = (SIGNAL * length * (rewards - rate))[:, None] * direction
    scores = shared + (noise if law.signal else length[:, None] * noise)
    return gt.RaggedRollouts.from_index(np.arange(prompts), index, rewards, scores), lengths
