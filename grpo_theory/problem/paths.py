"""Responses as paths of tokens through the tree of their prefixes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from grpo_theory.arrays import Array, Flags, Integers, cached_array, read_only
from grpo_theory.validation import as_array, as_count, check_room

SURE = 0.99
"""A token of a larger probability p is sure.  What is left of 1 - p after rounding is below 1e-14 of it for all others."""


@dataclass(frozen=True, eq=False)
class Paths:
    """K responses, each a path from the root of a tree whose every inner prefix continues with any of V tokens.

    The D edges of the tree are its pairs (prefix, token).  Edge d leaves prefix d // V with token d % V, and the policy has one
    logit for each edge.  A bandit is the tree of horizon 1, where responses, tokens and edges are the same thing.

    Attributes
    ----------
    edges : ndarray of int64, shape (K, T)
        The edge that each token of each response takes; -1 beyond the response's end.
    vocabulary_size : int
        V.

    Raises
    ------
    ValueError
        If the paths are not those of a tree whose every edge leads to one prefix or ends one response.  Also if responses of one
        token are not in the order of their tokens.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> paths = gt.TokenTree(1, vocabulary_size=2, horizon=2).paths
    >>> paths.tokens
    ((0, 0), (0, 1), (1, 0), (1, 1))
    >>> print(paths.edges)
    [[0 2]
     [0 3]
     [1 4]
     [1 5]]
    >>> values = np.arange(1.0, paths.n_logits + 1)  # of the six edges
    >>> paths.gather(values).tolist() == (values[paths.edges]).tolist(), paths.along(values).tolist()
    (True, [4.0, 5.0, 7.0, 8.0])
    >>> paths.spread(paths.gather(values)).shape, paths.add_up(np.ones((4, 2))).tolist(), paths.collect(np.ones(4)).tolist()
    ((4, 6), [2.0, 2.0, 1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    >>> paths.by_prefix(values).tolist(), paths.beside(values).tolist()
    ([3.0, 3.0, 7.0, 7.0, 11.0, 11.0], [2.0, 1.0, 4.0, 3.0, 6.0, 5.0])
    >>> logs = paths.log_probabilities(np.zeros(paths.n_logits))
    >>> bool(np.allclose(paths.conditionals(paths.along(logs)), logs))
    True
    >>> paths.centre(values, np.exp(logs)).tolist()
    [-0.5, 0.5, -0.5, 0.5, -0.5, 0.5]
    """

    edges: Integers
    vocabulary_size: int

    def __post_init__(self) -> None:
        try:
            edges = as_array("edges", self.edges)
        except ValueError as error:
            raise ValueError(f"edges must be an array of integers of shape (K, T): {error}") from None
        if edges.ndim != 2 or edges.size == 0 or edges.dtype.kind not in "iu":
            raise ValueError(f"edges must be an array of integers of shape (K, T), got shape {edges.shape} and {edges.dtype}")
        object.__setattr__(self, "edges", read_only(np.array(edges, dtype=np.int64, order="C")))
        as_count("vocabulary_size", self.vocabulary_size)
        if not self.taken[:, 0].all() or (self.taken[:, 1:] & ~self.taken[:, :-1]).any():
            raise ValueError("edges must be -1 beyond a response's end and nowhere else")
        before = np.pad(self.edges[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        steps = np.unique(np.stack([before, self.edges // self.vocabulary_size], axis=-1)[self.taken], axis=0)
        last = self.edges[np.arange(self.n_responses), self.lengths - 1]
        leading = np.sort(np.concatenate([last, steps[1:, 0]]))
        if np.unique(steps[:, 1]).size < len(steps) or not np.array_equal(leading, np.arange(self.n_logits)):
            raise ValueError("edges must make a tree in which every edge leads on to one prefix or ends one response")
        if self.horizon == 1 and not np.array_equal(last, leading):
            raise ValueError(f"edges must be 0 to V - 1 = {self.vocabulary_size - 1} in this order for responses of one token")

    @property
    def n_responses(self) -> int:
        """The number of responses K."""
        return self.edges.shape[0]

    @property
    def horizon(self) -> int:
        """The length T of the longest response."""
        return self.edges.shape[1]

    @cached_property
    def n_logits(self) -> int:
        """The number of edges D, a multiple of V."""
        return int(self.edges.max()) // self.vocabulary_size * self.vocabulary_size + self.vocabulary_size

    @cached_array
    def taken(self) -> Flags:
        """Whether a response has a token at each position, shape (K, T)."""
        return self.edges >= 0

    @cached_array
    def lengths(self) -> Integers:
        """The numbers of tokens, shape (K,)."""
        return self.taken.sum(axis=1)

    @cached_property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The responses written out, each a tuple of tokens."""
        rows = (self.edges[k, : self.lengths[k]] % self.vocabulary_size for k in range(self.n_responses))
        return tuple(tuple(int(token) for token in row) for row in rows)

    @cached_array
    def incidence(self) -> Array:
        """Which edges each response takes: 1 or 0, shape (K, D)."""
        check_room("the table of responses and edges", (self.n_responses, self.n_logits), "moments and gradient_mse do without")
        return self.spread(np.ones(self.edges.shape))

    def spread(self, weights: Array) -> Array:
        """Put weights of tokens (..., K, T) on the edges that the tokens take, shape (..., K, D); 0 on all other edges."""
        on_edges = np.zeros((*weights.shape[:-1], self.n_logits))
        k, t = np.nonzero(self.taken)
        on_edges[..., k, self.edges[k, t]] = weights[..., k, t]
        return on_edges

    def add_up(self, weights: Array) -> Array:
        """Add weights of the tokens of all responses (..., K, T) up on the edges that the tokens take, shape (..., D)."""
        rows = np.where(self.taken, weights, 0.0).reshape(-1, self.edges.size)
        return (self._takers @ rows.T).T.reshape(*weights.shape[:-2], self.n_logits)

    @cached_property
    def _takers(self) -> csr_array:
        """Which tokens of all responses take each edge, shape (D, K T)."""
        tokens = np.flatnonzero(self.taken)
        return csr_array((np.ones(tokens.size), (self.edges[self.taken], tokens)), shape=(self.n_logits, self.edges.size))

    def gather(self, values: Array) -> Array:
        """Read values of edges (..., D) along each response, shape (..., K, T); 0 beyond its end."""
        return np.where(self.taken, values[..., self.edges], 0.0)

    def log_probabilities(self, logits: Array) -> Array:
        """Return the log probability of each token given its prefix, shape (..., D), for logits of that shape."""
        return log_softmax(logits.reshape(*logits.shape[:-1], -1, self.vocabulary_size)).reshape(logits.shape)

    def along(self, values: Array) -> Array:
        """Sum values of edges (..., D) along each response, shape (..., K)."""
        if self.horizon == 1:
            return values
        total = values[..., self.edges[:, 0]]
        for t in range(1, self.horizon):
            total = total + np.where(self.taken[:, t], values[..., self.edges[:, t]], 0.0)
        return total

    def centre(self, weights: Array, probabilities: Array) -> Array:
        """Subtract at each prefix what the policy expects of the weights there.

        The covector of one token is e_edge - (the probabilities at its prefix); this is the sum of such covectors with the
        given weights.

        Parameters
        ----------
        weights, probabilities : ndarray, shapes that broadcast to (..., D)
            Weights of edges, and probabilities of tokens given their prefixes.

        Returns
        -------
        ndarray, shape (..., D)
        """
        # sum_e w_e (e_edge - p) = w - p sum_e w_e at each prefix: the gradient of a log softmax, e - p, times the weights.
        covectors = weights - self.by_prefix(weights) * probabilities
        rows, p = (array.reshape(*array.shape[:-1], -1, self.vocabulary_size) for array in (covectors, probabilities))
        return closed(rows, p).reshape(covectors.shape)

    def collect(self, weights: Array) -> Array:
        """Sum weights of responses (..., K) over the edges that they take, shape (..., D)."""
        return weights if self.horizon == 1 else weights @ self.incidence

    def beside(self, weights: Array) -> Array:
        """Sum weights of edges (..., D) over the other edges of each prefix, without a difference, shape (..., D)."""
        return sums_of_others(weights.reshape(*weights.shape[:-1], -1, self.vocabulary_size)).reshape(weights.shape)

    def by_prefix(self, weights: Array) -> Array:
        """Sum weights of edges (..., D) over the edges of each prefix, and give each edge its prefix's sum, shape (..., D)."""
        totals = weights.reshape(*weights.shape[:-1], -1, self.vocabulary_size).sum(axis=-1)
        return np.repeat(totals, self.vocabulary_size, axis=-1)

    @cached_array
    def siblings(self) -> Array:
        """Which pairs of edges leave one prefix: 1 or 0, shape (D, D)."""
        check_room("the table of pairs of edges", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        prefixes = np.arange(self.n_logits) // self.vocabulary_size
        return (prefixes[:, None] == prefixes).astype(np.float64)

    def conditionals(self, log_probabilities: Array) -> Array:
        """Return the log probability of each token given its prefix, (M, D), from those of the responses (M, K).

        The latter need not be normalised.
        """
        # pi(v | prefix) = P(responses through prefix and v) / P(responses through prefix), with sums of exponentials shifted
        # by the largest.
        if self.horizon == 1:
            return log_probabilities - logsumexp(log_probabilities, axis=-1, keepdims=True)
        k, t = np.nonzero(self.taken)
        through, edges = log_probabilities[..., k], self.edges[k, t]
        top = np.full((*through.shape[:-1], self.n_logits), -np.inf)
        np.maximum.at(top.T, edges, through.T)
        shift = np.where(np.isfinite(top), top, 0.0)
        total = np.zeros(top.shape)
        np.add.at(total.T, edges, np.exp(through - shift[..., edges]).T)
        with np.errstate(divide="ignore"):
            mass = (shift + np.log(total)).reshape(*top.shape[:-1], -1, self.vocabulary_size)
        return (mass - logsumexp(mass, axis=-1, keepdims=True)).reshape(top.shape)


def log_softmax(logits: Array) -> Array:
    """Return the logs of the probabilities that logits (..., V) make."""
    # Tokens come first for this: NumPy is slow to reduce a last axis that is short.
    below = np.array(logits.reshape(-1, logits.shape[-1]).T, dtype=np.float64, order="C")  # a copy, of a single row too
    below -= below.max(axis=0)
    below -= np.log(np.exp(below).sum(axis=0))
    return np.ascontiguousarray(below.T).reshape(logits.shape)


def complements(probabilities: Array) -> Array:
    """Return 1 - p for probabilities (..., V) that add up to 1: the sum of the others, where one of them is sure."""
    return sums_of_others(probabilities) if (probabilities > SURE).any() else 1.0 - probabilities


def sums_of_others(rows: Array) -> Array:
    """Return for each entry of rows (..., V) the sum of the others, without a difference."""
    sums = np.zeros(rows.shape)
    sums[..., 1:] = np.cumsum(rows[..., :-1], axis=-1)
    sums[..., :-1] += np.cumsum(rows[..., :0:-1], axis=-1)[..., ::-1]
    return sums


def closed(covectors: Array, probabilities: Array) -> Array:
    """Return covectors (..., V) in which a sure token has minus the sum of the others' entries.

    The entries of a covector w - p sum(w) add up to 0.  That of a sure token is a difference in which 1 - p cancels, and no other
    entry is.
    """
    sure = probabilities > SURE
    if not sure.any():
        return covectors
    return np.where(sure, -np.where(sure, 0.0, covectors).sum(axis=-1, keepdims=True), covectors)


def less_mean(values: Array, probabilities: Array, axis: int = -1) -> Array:
    """Return values less their mean along an axis: from their differences to the likeliest value, where one is sure.

    The sure value is then left with the others' share of the mean, however small that is: nothing cancels.
    """
    if not (probabilities > SURE).any():
        return values - (probabilities * values).sum(axis=axis, keepdims=True)
    values, probabilities = np.broadcast_arrays(values, probabilities)
    apart = values - np.take_along_axis(values, probabilities.argmax(axis=axis, keepdims=True), axis)
    return apart - (probabilities * apart).sum(axis=axis, keepdims=True)


def single_tokens(n_responses: int) -> Paths:
    """Return the paths of a bandit: every response is one token."""
    return Paths(np.arange(n_responses, dtype=np.int64)[:, None], n_responses)
