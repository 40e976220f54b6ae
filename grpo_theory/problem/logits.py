"""Logits: the tree of prefixes, which has one an edge and whose paths are responses, and how parameters become them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from grpo_theory.validation import Array, Flags, Integers, as_array, as_count, cached_array, check_room, read_only

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
    n_responses, horizon, n_logits : int
        K, the length T of the longest response, and the number of edges D, a multiple of V.
    taken : ndarray of bool, shape (K, T)
        Whether a response has a token at each position.
    lengths : ndarray of int64, shape (K,)
        The numbers of tokens.

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
    n_responses: int = field(init=False, repr=False)
    horizon: int = field(init=False, repr=False)
    n_logits: int = field(init=False, repr=False)
    taken: Flags = field(init=False, repr=False)
    lengths: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            edges = as_array("edges", self.edges)
        except ValueError as error:
            raise ValueError(f"edges must be an array of integers of shape (K, T): {error}") from None
        if edges.ndim != 2 or edges.size == 0 or edges.dtype.kind not in "iu":
            raise ValueError(f"edges must be an array of integers of shape (K, T), got shape {edges.shape} and {edges.dtype}")
        edges, size = read_only(np.array(edges, dtype=np.int64, order="C")), as_count("vocabulary_size", self.vocabulary_size)
        taken, n_logits = read_only(edges >= 0), int(edges.max()) // size * size + size
        vars(self).update(edges=edges, taken=taken, lengths=read_only(taken.sum(axis=1)), n_logits=n_logits)
        vars(self).update(n_responses=edges.shape[0], horizon=edges.shape[1])
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

    @cached_property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The responses written out, each a tuple of tokens."""
        rows = (self.edges[k, : self.lengths[k]] % self.vocabulary_size for k in range(self.n_responses))
        return tuple(tuple(int(token) for token in row) for row in rows)

    @cached_property
    def by_length(self) -> tuple[tuple[Integers, Integers], ...]:
        """Of each length the responses that have it, shape (K',), and their edges, token by token, shape (length, K')."""
        alike = [np.flatnonzero(self.lengths == length) for length in np.unique(self.lengths)]
        return tuple((rows, np.ascontiguousarray(self.edges[rows, : self.lengths[rows[0]]].T)) for rows in alike)

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

    def _rows(self, values: Array) -> Array:
        """Return values of edges (..., D) by prefix, (..., D/V, V): also of no policy at all."""
        return values.reshape(*values.shape[:-1], values.shape[-1] // self.vocabulary_size, self.vocabulary_size)

    def log_probabilities(self, logits: Array) -> Array:
        """Return the log probability of each token given its prefix, shape (..., D), for logits of that shape."""
        return log_softmax(self._rows(logits)).reshape(logits.shape)

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

        The logit gradient of one token is e_edge - (the probabilities at its prefix); this is the sum of
        such logit gradients with the given weights.

        Parameters
        ----------
        weights, probabilities : ndarray, shapes that broadcast to (..., D)
            Weights of edges, and probabilities of tokens given their prefixes.

        Returns
        -------
        ndarray, shape (..., D)
        """
        # sum_e w_e (e_edge - p) = w - p sum_e w_e at each prefix: the gradient of a log softmax, e - p, times the weights.
        logit_gradients = weights - self.by_prefix(weights) * probabilities
        rows, p = (self._rows(array) for array in (logit_gradients, probabilities))
        return closed(rows, p).reshape(logit_gradients.shape)

    def collect(self, weights: Array) -> Array:
        """Sum weights of responses (..., K) over the edges that they take, shape (..., D)."""
        return weights if self.horizon == 1 else weights @ self.incidence

    def beside(self, weights: Array) -> Array:
        """Sum weights of edges (..., D) over the other edges of each prefix, without a difference, shape (..., D)."""
        return sums_of_others(self._rows(weights)).reshape(weights.shape)

    def by_prefix(self, weights: Array) -> Array:
        """Sum weights of edges (..., D) over the edges of each prefix, and give each edge its prefix's sum, shape (..., D)."""
        totals = self._rows(weights).sum(axis=-1)
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
            mass = self._rows(shift + np.log(total))
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


def closed(logit_gradients: Array, probabilities: Array) -> Array:
    """Return logit gradients (..., V) in which a sure token has minus the sum of the others' entries.

    The entries of a logit gradient w - p sum(w) add up to 0.  That of a sure token is a difference in which 1 - p
    cancels, and no other entry is.
    """
    sure = probabilities > SURE
    if not sure.any():
        return logit_gradients
    return np.where(sure, -np.where(sure, 0.0, logit_gradients).sum(axis=-1, keepdims=True), logit_gradients)


def less_mean(values: Array, probabilities: Array, axis: int = -1) -> Array:
    """Return values less their mean along an axis: from their differences to the likeliest value, where one is sure.

    The sure value is then left with the others' share of the mean, however small that is: nothing cancels.
    """
    if not (probabilities > SURE).any():
        return values - (probabilities * values).sum(axis=axis, keepdims=True)
    values, probabilities = np.broadcast_arrays(values, probabilities)
    apart = values - np.take_along_axis(values, probabilities.argmax(axis=axis, keepdims=True), axis)
    return apart - (probabilities * apart).sum(axis=axis, keepdims=True)


LARGEST_DIMENSION = 4096
"""Matrices of shape (d, d) are not formed for more parameters of a structured map."""

ALONE = "ask gradient_law(...) for .trace, .mse or .variance_along(directions), or take each prompt as a problem of its own"
"""What to do without such a matrix where each prompt has parameters of its own."""


def check_square(dimension: int) -> None:
    """Raise where a matrix of all pairs of parameters is too large to be wanted."""
    if dimension > LARGEST_DIMENSION:
        raise ValueError(
            f"a matrix of shape {(dimension, dimension)} is not formed for this policy; "
            "ask gradient_law(...) for .trace, .mse or .variance_along(directions) instead"
        )


class SmoothMap(ABC):
    """A map from parameters theta (d,) to logits (M, D), one for each prompt and edge, that need not be linear.

    Moments and laws at a point read only the first derivatives of the logits there, which are a `LogitMap`; Hessians read the
    second ones too.  A `LogitMap` is a `SmoothMap` whose first derivatives are the same everywhere.

    Attributes
    ----------
    n_prompts, n_logits, dimension : int
        M, D and d.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> policy = gt.TwoLayerSoftmax(np.eye(2), width=3, n_responses=2)
    >>> theta, smooth = policy.start(0), policy.logit_map
    >>> smooth.logits(theta).shape, smooth.at(theta).logits(theta).shape, smooth.bend(theta, np.ones((2, 2))).shape
    ((2, 2), (2, 2), (12, 12))
    """

    n_prompts: int
    n_logits: int
    dimension: int
    learns_features = False
    """Whether all gradients vanish at zeros, as those of a network do."""

    @abstractmethod
    def logits(self, theta: Array) -> Array:
        """Return the logits, shape (..., M, D), for theta of shape (..., d); Phi theta if they are linear."""

    @abstractmethod
    def at(self, theta: Array) -> "LogitMap":
        """Return the derivatives of the logits at theta (d,): the linear map Phi of the policy's scores there."""

    @abstractmethod
    def bend(self, theta: Array, slopes: Array) -> Array | None:
        """Return sum_md slope_md times the second derivative of logit (m, d) at theta (d,), shape (d, d).

        Slopes have shape (M, D).  None where there are no second derivatives.
        """


class LogitMap(SmoothMap):
    """A linear map Phi from parameters theta (d,) to logits (M, D), one for each prompt and edge.

    Whatever a theorem asks of the d-dimensional scores is a statement about D-dimensional logit gradients and the inner
    products Phi_m Phi_m' of each prompt.  A map therefore gives Phi, its adjoint and its Gram matrices.  No array of shape (M,
    D, d) is needed anywhere.  Give a map of your own to `Policy`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> policy = gt.LinearSoftmax([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> phi, logit_gradients = policy.logit_map, np.array([[0.5, -0.5], [0.25, -0.25]])
    >>> phi.logits(np.array([1.0, 2.0])).tolist(), phi.gram().shape
    ([[1.0, 2.0], [3.0, 0.0]], (2, 2, 2))
    >>> phi.adjoint(logit_gradients).tolist(), phi.adjoint_by_prompt(logit_gradients).tolist()
    ([0.75, -0.25], [[0.5, -0.5], [0.25, 0.25]])
    >>> phi.squared_norms(logit_gradients[:, None]).tolist(), phi.congruence(np.tile(np.eye(2), (2, 1, 1))).tolist()
    ([[0.5], [0.125]], [[2.0, 1.0], [1.0, 2.0]])
    >>> phi.token_products(policy.paths, policy.probabilities([0.0, 0.0])).shape
    (2, 2, 1, 1)
    >>> phi.at(np.zeros(2)) is phi, phi.bend(np.zeros(2), logit_gradients) is None  # a linear map does not bend
    (True, True)
    """

    def at(self, theta: Array) -> Self:
        """Return the map itself: its derivatives are the same everywhere."""
        return self

    def bend(self, theta: Array, slopes: Array) -> None:
        """Return nothing: a linear map has no second derivatives."""

    @abstractmethod
    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return Phi_m' c_m for each prompt, shape (M, d), for logit gradients c of shape (M, D)."""

    @abstractmethod
    def adjoint(self, logit_gradients: Array) -> Array:
        """Return sum_m Phi_m' c_m, shape (d,), for logit gradients c of shape (M, D)."""

    @abstractmethod
    def gram(self) -> Array:
        """Return Phi_m Phi_m' for each prompt, shape (M, D, D)."""

    @abstractmethod
    def congruence(self, matrices: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d), for matrices A of shape (M, D, D)."""

    def squared_norms(self, logit_gradients: Array) -> Array:
        """Return ||Phi_m' c||^2, shape (M, K), for K logit gradients c of each prompt, shape (M, K, D)."""
        # ||Phi' c||^2 = c' (Phi Phi') c: traces need only the Gram matrix (docs/derivations.md, section 4).
        return np.maximum(((logit_gradients @ self.gram()) * logit_gradients).sum(axis=-1), 0.0)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T); 0 beyond its end.

        Parameters
        ----------
        paths : Paths
            The K responses, of T tokens at most.
        probabilities : ndarray, shape (M, D)
            The probabilities of tokens given their prefixes.
        """
        positions = np.eye(paths.horizon)[:, None, :] * np.ones((paths.n_responses, 1))
        tokens = [paths.centre(paths.spread(position), probabilities[:, None, :]) for position in positions]
        products = np.empty((len(probabilities), paths.n_responses, paths.horizon, paths.horizon))
        for t, token in enumerate(tokens):
            products[..., t, t] = self.squared_norms(token)
            for s, before in enumerate(tokens[:t]):
                # A map of a user's own gives squared norms alone, and 2 <a, b> = ||a + b||^2 - ||a||^2 - ||b||^2.
                both = self.squared_norms(before + token) - products[..., s, s] - products[..., t, t]
                products[..., s, t] = products[..., t, s] = 0.5 * both
        return products


def orthogonal_products(paths: Paths, probabilities: Array) -> Array:
    """Return inner products of tokens' logit gradients along responses, (M, K, T, T): those at different prefixes have none."""
    of_others = complements(probabilities.reshape(len(probabilities), -1, paths.vocabulary_size)).reshape(probabilities.shape)
    # ||e_v - p||^2 = (1 - p_v)^2 + sum_{u != v} p_u^2, and 1 - p_v as the sum of the others.
    squares = of_others**2 + paths.beside(probabilities**2)
    products = np.zeros((len(probabilities), paths.n_responses, paths.horizon, paths.horizon))
    positions = np.arange(paths.horizon)
    products[..., positions, positions] = paths.gather(squares)
    return products


class TabularMap(LogitMap):
    """A free logit for every prompt and edge: theta is their table (M, D), flattened row by row."""

    def __init__(self, n_prompts: int, n_logits: int) -> None:
        self.n_prompts, self.n_logits = n_prompts, n_logits
        self.dimension = n_prompts * n_logits

    def logits(self, theta: Array) -> Array:
        """Return the table of logits, shape (..., M, D)."""
        return theta.reshape(*theta.shape[:-1], self.n_prompts, self.n_logits)

    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return each logit gradient in its own prompt's block, shape (M, d)."""
        check_room(
            "the gradient of each prompt", (self.n_prompts, self.dimension), "moments have them as gradient_in_logits, (M, D)"
        )
        blocks = np.zeros((self.n_prompts, self.n_prompts, self.n_logits))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, prompts] = logit_gradients
        return blocks.reshape(self.n_prompts, self.dimension)

    def adjoint(self, logit_gradients: Array) -> Array:
        """Return the logit gradients, flattened, shape (d,)."""
        return logit_gradients.reshape(self.dimension)

    def gram(self) -> Array:
        """Return M identity matrices, shape (M, D, D)."""
        check_room("the inner products of all logits", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        return np.broadcast_to(np.eye(self.n_logits), (self.n_prompts, self.n_logits, self.n_logits))

    def congruence(self, matrices: Array) -> Array:
        """Return the block diagonal matrix of these, shape (d, d)."""
        check_room("the matrix of all pairs of parameters", (self.dimension, self.dimension), ALONE)
        blocks = np.zeros((self.n_prompts, self.n_logits, self.n_prompts, self.n_logits))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, :, prompts, :] = matrices
        return blocks.reshape(self.dimension, self.dimension)

    def squared_norms(self, logit_gradients: Array) -> Array:
        """Return |c|^2, shape (M, K)."""
        return (logit_gradients**2).sum(axis=-1)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        return orthogonal_products(paths, probabilities)


class FeatureMap(LogitMap):
    """Logits phi(m, d) . theta with a dense feature vector for every prompt and edge, shape (M, D, d)."""

    def __init__(self, features: Array) -> None:
        self.features = read_only(features)
        self.n_prompts, self.n_logits, self.dimension = features.shape

    def logits(self, theta: Array) -> Array:
        """Return phi . theta, shape (..., M, D)."""
        logits = theta.reshape(-1, self.dimension) @ self.features.reshape(-1, self.dimension).T
        return logits.reshape(*theta.shape[:-1], self.n_prompts, self.n_logits)

    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return the sum of c phi over edges, shape (M, d)."""
        return np.einsum("mkd,mk->md", self.features, logit_gradients)

    def adjoint(self, logit_gradients: Array) -> Array:
        """Return the sum of c phi over prompts and edges, shape (d,)."""
        return np.einsum("mkd,mk->d", self.features, logit_gradients)

    def gram(self) -> Array:
        """Return the inner products of features at each prompt, shape (M, D, D)."""
        return np.einsum("mkd,mld->mkl", self.features, self.features)

    def congruence(self, matrices: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d)."""
        return self.features.reshape(-1, self.dimension).T @ (matrices @ self.features).reshape(-1, self.dimension)

    def squared_norms(self, logit_gradients: Array) -> Array:
        """Return |sum_d c phi|^2, shape (M, K)."""
        return ((logit_gradients @ self.features) ** 2).sum(axis=-1)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        by_prefix = self.features.reshape(self.n_prompts, -1, paths.vocabulary_size, self.dimension)
        p = probabilities.reshape(by_prefix.shape[:-1])
        # The score of token v at its prefix is w_v = phi_v - sum_u p_u phi_u (docs/derivations.md, section 15).
        scores = less_mean(by_prefix, p[..., None], axis=-2).reshape(self.features.shape)
        products = np.empty((self.n_prompts, *paths.edges.shape, paths.horizon))
        for t in range(paths.horizon):
            for s in range(t + 1):
                both = np.einsum("mkd,mkd->mk", scores[:, paths.edges[:, s]], scores[:, paths.edges[:, t]])
                products[..., s, t] = products[..., t, s] = np.where(paths.taken[:, t], both, 0.0)
        return products


class SharedMap(LogitMap):
    """One map for all prompts: they differ in where they begin, and not in what their logits are.

    Parameters
    ----------
    n_prompts, n_logits : int
        M and D.
    features : ndarray, shape (D, d), or None
        A free logit for every edge, d = D, if None.
    """

    def __init__(self, n_prompts: int, n_logits: int, features: Array | None) -> None:
        self.n_prompts, self.n_logits, self.features = n_prompts, n_logits, read_only(features)
        self.dimension = n_logits if features is None else features.shape[1]

    def vectors(self, logit_gradients: Array) -> Array:
        """Return Phi' c for logit gradients c of shape (..., D), shape (..., d)."""
        return logit_gradients if self.features is None else logit_gradients @ self.features

    def logits(self, theta: Array) -> Array:
        """Return the logits, the same for each prompt, shape (..., M, D)."""
        shared = theta if self.features is None else theta @ self.features.T
        return np.broadcast_to(shared[..., None, :], (*theta.shape[:-1], self.n_prompts, self.n_logits))

    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return Phi' c_m, shape (M, d)."""
        return self.vectors(logit_gradients)

    def adjoint(self, logit_gradients: Array) -> Array:
        """Return Phi' sum_m c_m, shape (d,)."""
        return self.vectors(logit_gradients.sum(axis=0))

    def gram(self) -> Array:
        """Return Phi Phi' for each prompt, shape (M, D, D)."""
        check_room("the inner products of all logits", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        own = np.eye(self.n_logits) if self.features is None else self.features @ self.features.T
        return np.broadcast_to(own, (self.n_prompts, *own.shape))

    def congruence(self, matrices: Array) -> Array:
        """Return Phi' (sum_m A_m) Phi, shape (d, d)."""
        total = matrices.sum(axis=0)
        return total if self.features is None else self.features.T @ total @ self.features

    def squared_norms(self, logit_gradients: Array) -> Array:
        """Return ||Phi' c||^2, shape (M, K)."""
        return (self.vectors(logit_gradients) ** 2).sum(axis=-1)


class PrefixHeadMap(LogitMap):
    """Logits W h_mp of a head W (V, H) over frozen hidden states h (M, P, H) of prefixes.

    The parameter theta is W, flattened row by row.  The features of the edge with token v at prefix p are e_v x h_mp.  The inner
    product of two edges' features is that of the hidden states if they have the same token, and otherwise 0.  Nothing of shape
    (M, D, d) is formed.
    """

    def __init__(self, hidden: Array, vocabulary_size: int) -> None:
        self.hidden = self.states = read_only(hidden)
        self.n_prompts, self.n_prefixes, self.width = hidden.shape
        self.vocabulary_size = vocabulary_size
        self.n_logits = self.n_prefixes * vocabulary_size
        self.dimension = vocabulary_size * self.width

    @cached_array
    def prefix_gram(self) -> Array:
        """Inner products of the hidden states of each prompt, shape (M, P, P)."""
        return self.states @ np.swapaxes(self.states, 1, 2)

    def _by_prefix(self, logit_gradients: Array) -> Array:
        return logit_gradients.reshape(*logit_gradients.shape[:-1], self.n_prefixes, self.vocabulary_size)

    def logits(self, theta: Array) -> Array:
        """Return W h_mp, shape (..., M, D)."""
        by_token = theta.reshape(-1, self.width) @ self.states.reshape(-1, self.width).T
        by_prefix = np.swapaxes(by_token.reshape(*theta.shape[:-1], self.vocabulary_size, -1), -1, -2)
        return by_prefix.reshape(*theta.shape[:-1], self.n_prompts, self.n_logits)

    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return sum_p c_mp x h_mp, shape (M, d)."""
        heads = np.swapaxes(self._by_prefix(logit_gradients), 1, 2) @ self.states
        return heads.reshape(self.n_prompts, self.dimension)

    def adjoint(self, logit_gradients: Array) -> Array:
        """Return sum_mp c_mp x h_mp, shape (d,)."""
        columns = logit_gradients.reshape(-1, self.vocabulary_size)
        return (columns.T @ self.states.reshape(-1, self.width)).reshape(self.dimension)

    def gram(self) -> Array:
        """Return the inner products of the prefixes' hidden states times the identity of the tokens, shape (M, D, D)."""
        blocks = self.prefix_gram[:, :, None, :, None] * np.eye(self.vocabulary_size)[:, None, :]
        return blocks.reshape(self.n_prompts, self.n_logits, self.n_logits)

    def congruence(self, matrices: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d); refused where that matrix is too large to be wanted."""
        check_square(self.dimension)
        sizes = (self.n_prefixes, self.vocabulary_size)
        blocks = matrices.reshape(self.n_prompts, *sizes, *sizes)
        # Features are e_v x h_p: entry (v h, w i) of sum_m Phi_m' A_m Phi_m is sum_mpq A_m[p v, q w] h_mp[h] h_mq[i].
        product = np.einsum("mpvqw,mph,mqi->vhwi", blocks, self.states, self.states, optimize=True)
        return product.reshape(self.dimension, self.dimension)

    def squared_norms(self, logit_gradients: Array) -> Array:
        """Return ||sum_p c_p x h_mp||^2, shape (M, K)."""
        # ||sum_p c_p x h_p||^2 = sum_pq (c_p . c_q)(h_p . h_q) (docs/derivations.md, section 11).
        columns = np.swapaxes(self._by_prefix(logit_gradients), -1, -2)
        return np.maximum(((columns @ self.prefix_gram[:, None]) * columns).sum(axis=(-2, -1)), 0.0)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        prefixes, tokens = np.divmod(np.where(paths.taken, paths.edges, 0), self.vocabulary_size)
        of_tokens = less_mean(np.eye(self.vocabulary_size), self._by_prefix(probabilities)[..., None], axis=-2)
        logit_gradients = of_tokens[:, prefixes, tokens] * paths.taken[:, :, None]
        products = self.prefix_gram[:, prefixes[:, :, None], prefixes[:, None, :]]
        for s in range(paths.horizon):
            for t in range(paths.horizon):
                # <c_s x h_s, c_t x h_t> = (c_s . c_t)(h_s . h_t) (docs/derivations.md, section 11).
                products[..., s, t] *= np.einsum("mkv,mkv->mk", logit_gradients[:, :, s], logit_gradients[:, :, t])
        return products


class HeadMap(PrefixHeadMap):
    """Logits W h_m of a head W (D, H) over frozen hidden states h (M, H); theta is W, flattened row by row.

    Phi_m = I_D x h_m', so the Gram matrices are ||h_m||^2 I_D, and inner products across prompts are (h_m . h_n)(c_m . c_n).
    """

    def __init__(self, hidden: Array, n_logits: int) -> None:
        super().__init__(hidden[:, None], n_logits)
        self.hidden = read_only(hidden)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        return self.prefix_gram[..., None] * orthogonal_products(paths, probabilities)
