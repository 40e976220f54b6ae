"""Families of one prompt's policies, drawn at random or numbered by a parameter vector for a search."""

from typing import NamedTuple

import numpy as np

from simulations.normalisation.policies import Policy

LOGITS = 8.0
"""Bound of the logits, so that p is at least about 1e-7: what is attained only as p falls to 0 is near there."""


class Family(NamedTuple):
    """Policies with so many responses, so many of them correct; random ones, and those numbered by a parameter vector."""

    n_responses: int
    n_correct: int

    @property
    def name(self):
        """In words."""
        return f"K = {self.n_responses}, {self.n_correct} correct"

    @property
    def correct(self):
        """Which responses are correct, shape (K,)."""
        return np.arange(self.n_responses) < self.n_correct

    def draw(self, rng, make):
        """Return a random policy, and one within the radius sqrt(V)/X of it, as often along the gradient as not."""
        features = rng.normal(size=(self.n_responses, rng.integers(1, self.n_responses + 1)))
        lean = rng.normal() * self.correct @ features  # to the correct responses, or away from them
        theta = rng.normal(size=lean.size) + lean
        theta *= rng.uniform(0.0, 2.0 * LOGITS) / np.ptp(features @ theta)
        here = make(features @ theta, features, self.correct)
        direction = rng.normal(size=theta.size) if rng.uniform() < 0.5 else rng.choice([-1.0, 1.0]) * here.gradient
        return here, _within(here, direction, rng.uniform() ** 0.5)

    def bounds(self):
        """Return the box of parameters: logits, features, and where within the radius."""
        k = self.n_responses
        return [(-LOGITS, LOGITS)] * k + [(-1.0, 1.0)] * (k * k + k) + [(0.0, 1.0)]

    def at(self, x):
        """Return the two policies of a parameter vector."""
        k = self.n_responses
        logits, features, direction = x[:k], x[k : k * k + k].reshape(k, k), x[k * k + k : -1]
        here = Policy(logits, features, self.correct)
        return here, _within(here, direction, x[-1])


def _within(here, direction, share):
    """Return the policy a share of the radius away."""
    radius = np.sqrt(here.variance) / here.scale
    return here.moved(share * radius * direction / (np.linalg.norm(direction) + 1e-12))
