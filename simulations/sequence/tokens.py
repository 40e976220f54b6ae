"""A policy over sequences written out in plain NumPy: probabilities, scores and second derivatives, token by token.

It shares with the library only the numbering of the edges, so that a study can set what the library computes against it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.validation import Array
from simulations.seeds import seed_of


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a tree at one prompt, with logits of the edges and their gradients, the features.

    The logits are any numbers, not only features times a parameter: a network has biases.

    Attributes
    ----------
    paths : Paths
    logits : ndarray, shape (D,)
    features : ndarray, shape (D, d)
    """

    paths: gt.Paths
    logits: Array
    features: Array

    @cached_property
    def probabilities(self) -> Array:
        """Probability of each token given its prefix, shape (D,)."""
        by_prefix = self.logits.reshape(-1, self.paths.vocabulary_size)
        grown = np.exp(by_prefix - by_prefix.max(axis=1, keepdims=True))
        return (grown / grown.sum(axis=1, keepdims=True)).reshape(-1)

    @cached_property
    def scores(self) -> Array:
        """Gradient of the log probability of each token given its prefix, shape (D, d)."""
        return self.features - self._expected(self.features)

    @cached_property
    def covariances(self) -> Array:
        """Covariance of the features at the prefix of each edge, the negative Hessian of its log probability, (D, d, d)."""
        return self._expected(self.scores[:, :, None] * self.scores[:, None, :])

    @cached_property
    def lipschitz(self) -> float:
        """The least constant L for which every token's score is L-Lipschitz in the parameter, whatever the logits.

        It is a quarter of the squared distance of the two tokens, of one prefix, whose features are farthest apart
        (docs/derivations.md, section 25).
        """
        at = self.features.reshape(-1, self.paths.vocabulary_size, self.features.shape[1])
        return float(((at[:, :, None] - at[:, None]) ** 2).sum(axis=-1).max()) / 4.0

    def of_responses(self, values: Array) -> Array:
        """Read values of the edges (D, ...) along the responses, shape (K, T, ...); 0 beyond their ends."""
        taken = self.paths.taken.reshape(*self.paths.taken.shape, *(1,) * (values.ndim - 1))
        return np.where(taken, values[self.paths.edges], 0.0)

    @cached_property
    def response_probabilities(self) -> Array:
        """Probability of each response, shape (K,)."""
        return np.where(self.paths.taken, self.probabilities[self.paths.edges], 1.0).prod(axis=1)

    @cached_property
    def response_scores(self) -> Array:
        """Score of each response, shape (K, d)."""
        return self.of_responses(self.scores).sum(axis=1)

    def _expected(self, values: Array) -> Array:
        """Return what the policy expects of values of the edges (D, ...) at the prefix of each, shape (D, ...)."""
        size, weighted = self.paths.vocabulary_size, self.probabilities.reshape(-1, *(1,) * (values.ndim - 1)) * values
        return np.repeat(weighted.reshape(-1, size, *values.shape[1:]).sum(axis=1), size, axis=0)


@dataclass(frozen=True)
class Family:
    """Policies over the sequences of one tree, numbered by a bounded parameter vector.

    The first token of each prefix has logit 0 and features 0, because only differences matter.

    Attributes
    ----------
    vocabulary_size, horizon : int
    end_token : int or None
    """

    vocabulary_size: int
    horizon: int
    end_token: int | None = None

    @cached_property
    def paths(self) -> gt.Paths:
        """The responses."""
        return gt.TokenTree(1, self.vocabulary_size, self.horizon, self.end_token).paths

    @property
    def name(self) -> str:
        """In words."""
        return f"T = {self.horizon}, V = {self.vocabulary_size}{'' if self.end_token is None else ', end token'}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many parameters are logits of the old policy, features, rewards, and the drift of the logits."""
        free = self.paths.n_logits // self.vocabulary_size * (self.vocabulary_size - 1)
        return free, free * (self.vocabulary_size - 1), self.paths.n_responses, free

    def bounds(self, logits: float, drift: float, reward: float) -> list[tuple[float, float]]:
        """Return the box of parameters: logits, rewards and drift up to given sizes, and features in [-1, 1]."""
        sides = (logits, 1.0, reward, drift)
        return [(-side, side) for side, size in zip(sides, self.sizes, strict=True) for _ in range(size)]

    def at(self, x: Array) -> tuple[Tokens, Tokens, Array]:
        """Return the old policy, the current one, and the rewards (K,) of a parameter vector."""
        logits, features, rewards, drift = np.split(x, np.cumsum(self.sizes)[:-1])
        edges = self._fill(features.reshape(logits.size, -1))
        old, now = (Tokens(self.paths, self._fill(one), edges) for one in (logits, logits + drift))
        return old, now, rewards

    def _fill(self, values: Array) -> Array:
        """Put a zero before the values of each prefix, shape (D, ...)."""
        by_prefix = values.reshape(-1, self.vocabulary_size - 1, *values.shape[1:])
        zeros = np.zeros((len(by_prefix), 1, *values.shape[1:]))
        return np.concatenate([zeros, by_prefix], axis=1).reshape(-1, *values.shape[1:])


def draw(box, count, rng):
    """Return random points of a box, shape (count, n)."""
    low, high = np.transpose(box)
    return rng.uniform(low, high, size=(count, len(box)))


def worst_ratios(sides, family, box, rng, policies, **search):
    """Return left over right side of a bound, at the worst of random policies of a family, and where a search ends."""
    random = [left / right for left, right in (sides(*family.at(x)) for x in draw(box, policies, rng))]
    sought = gt.worst_case(lambda x: sides(*family.at(x)), box, rng=seed_of(rng), **search)
    return {"random": largest(random), "sought": sought.score}


def within(found, times=1.0):
    """Return the sides of a bound: the largest ratio and 1, with each ratio beside; `times` divides the bound by a factor."""
    worst = {how: times * largest(ratios) for how, ratios in found.items()}
    return max(worst.values()), 1.0, worst
