"""How parameters become logits: linear maps Phi, dense or structured, and what any map must give."""

from abc import ABC, abstractmethod
from typing import Self

import numpy as np

from grpo_theory.arrays import Array, cached_array, read_only
from grpo_theory.problem.paths import Paths, complements, less_mean
from grpo_theory.validation import check_room

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

    @abstractmethod
    def logits(self, theta: Array) -> Array:
        """Return the logits, shape (..., M, D), for theta of shape (..., d)."""

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

    Whatever a theorem asks of the d-dimensional scores is a statement about D-dimensional covectors and the inner products Phi_m
    Phi_m' of each prompt.  A map therefore gives Phi, its adjoint and its Gram matrices.  No array of shape (M, D, d) is needed
    anywhere.  Give a map of your own to `Policy`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> policy = gt.LinearSoftmax([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> phi, covectors = policy.logit_map, np.array([[0.5, -0.5], [0.25, -0.25]])
    >>> phi.logits(np.array([1.0, 2.0])).tolist(), phi.gram().shape
    ([[1.0, 2.0], [3.0, 0.0]], (2, 2, 2))
    >>> phi.adjoint(covectors).tolist(), phi.adjoint_by_prompt(covectors).tolist()
    ([0.75, -0.25], [[0.5, -0.5], [0.25, 0.25]])
    >>> phi.squared_norms(covectors[:, None]).tolist(), phi.congruence(np.tile(np.eye(2), (2, 1, 1))).tolist()
    ([[0.5], [0.125]], [[2.0, 1.0], [1.0, 2.0]])
    >>> phi.token_products(policy.paths, policy.probabilities([0.0, 0.0])).shape
    (2, 2, 1, 1)
    >>> phi.at(np.zeros(2)) is phi, phi.bend(np.zeros(2), covectors) is None  # a linear map has the same derivatives everywhere
    (True, True)
    """

    @abstractmethod
    def logits(self, theta: Array) -> Array:
        """Return Phi theta, shape (..., M, D), for theta of shape (..., d)."""

    def at(self, theta: Array) -> Self:
        """Return the map itself: its derivatives are the same everywhere."""
        return self

    def bend(self, theta: Array, slopes: Array) -> None:
        """Return nothing: a linear map has no second derivatives."""

    @abstractmethod
    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return Phi_m' c_m for each prompt, shape (M, d), for covectors c of shape (M, D)."""

    @abstractmethod
    def adjoint(self, covectors: Array) -> Array:
        """Return sum_m Phi_m' c_m, shape (d,), for covectors c of shape (M, D)."""

    @abstractmethod
    def gram(self) -> Array:
        """Return Phi_m Phi_m' for each prompt, shape (M, D, D)."""

    @abstractmethod
    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d), for forms A of shape (M, D, D)."""

    def squared_norms(self, covectors: Array) -> Array:
        """Return ||Phi_m' c||^2, shape (M, K), for K covectors c of each prompt, shape (M, K, D)."""
        return np.maximum(((covectors @ self.gram()) * covectors).sum(axis=-1), 0.0)

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
    """Return the inner products of tokens' covectors along each response, (M, K, T, T): those at different prefixes have none."""
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

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return each covector in its own prompt's block, shape (M, d)."""
        check_room(
            "the gradient of each prompt", (self.n_prompts, self.dimension), "moments have them as gradient_covectors, (M, D)"
        )
        blocks = np.zeros((self.n_prompts, self.n_prompts, self.n_logits))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, prompts] = covectors
        return blocks.reshape(self.n_prompts, self.dimension)

    def adjoint(self, covectors: Array) -> Array:
        """Return the covectors, flattened, shape (d,)."""
        return covectors.reshape(self.dimension)

    def gram(self) -> Array:
        """Return M identity matrices, shape (M, D, D)."""
        check_room("the inner products of all logits", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        return np.broadcast_to(np.eye(self.n_logits), (self.n_prompts, self.n_logits, self.n_logits))

    def congruence(self, forms: Array) -> Array:
        """Return the block diagonal matrix of the forms, shape (d, d)."""
        check_room("the matrix of all pairs of parameters", (self.dimension, self.dimension), ALONE)
        blocks = np.zeros((self.n_prompts, self.n_logits, self.n_prompts, self.n_logits))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, :, prompts, :] = forms
        return blocks.reshape(self.dimension, self.dimension)

    def squared_norms(self, covectors: Array) -> Array:
        """Return |c|^2, shape (M, K)."""
        return (covectors**2).sum(axis=-1)

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

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return the sum of c phi over edges, shape (M, d)."""
        return np.einsum("mkd,mk->md", self.features, covectors)

    def adjoint(self, covectors: Array) -> Array:
        """Return the sum of c phi over prompts and edges, shape (d,)."""
        return np.einsum("mkd,mk->d", self.features, covectors)

    def gram(self) -> Array:
        """Return the inner products of features at each prompt, shape (M, D, D)."""
        return np.einsum("mkd,mld->mkl", self.features, self.features)

    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d)."""
        return self.features.reshape(-1, self.dimension).T @ (forms @ self.features).reshape(-1, self.dimension)

    def squared_norms(self, covectors: Array) -> Array:
        """Return |sum_d c phi|^2, shape (M, K)."""
        return ((covectors @ self.features) ** 2).sum(axis=-1)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        by_prefix = self.features.reshape(self.n_prompts, -1, paths.vocabulary_size, self.dimension)
        p = probabilities.reshape(by_prefix.shape[:-1])
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
        self.n_prompts, self.n_logits, self.features = n_prompts, n_logits, features
        self.dimension = n_logits if features is None else features.shape[1]
        if features is not None:
            features.setflags(write=False)

    def vectors(self, covectors: Array) -> Array:
        """Return Phi' c for covectors c of shape (..., D), shape (..., d)."""
        return covectors if self.features is None else covectors @ self.features

    def logits(self, theta: Array) -> Array:
        """Return the logits, the same for each prompt, shape (..., M, D)."""
        shared = theta if self.features is None else theta @ self.features.T
        return np.broadcast_to(shared[..., None, :], (*theta.shape[:-1], self.n_prompts, self.n_logits))

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return Phi' c_m, shape (M, d)."""
        return self.vectors(covectors)

    def adjoint(self, covectors: Array) -> Array:
        """Return Phi' sum_m c_m, shape (d,)."""
        return self.vectors(covectors.sum(axis=0))

    def gram(self) -> Array:
        """Return Phi Phi' for each prompt, shape (M, D, D)."""
        check_room("the inner products of all logits", (self.n_logits, self.n_logits), "moments and gradient_mse do without")
        own = np.eye(self.n_logits) if self.features is None else self.features @ self.features.T
        return np.broadcast_to(own, (self.n_prompts, *own.shape))

    def congruence(self, forms: Array) -> Array:
        """Return Phi' (sum_m A_m) Phi, shape (d, d)."""
        total = forms.sum(axis=0)
        return total if self.features is None else self.features.T @ total @ self.features

    def squared_norms(self, covectors: Array) -> Array:
        """Return ||Phi' c||^2, shape (M, K)."""
        return (self.vectors(covectors) ** 2).sum(axis=-1)


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

    def _by_prefix(self, covectors: Array) -> Array:
        return covectors.reshape(*covectors.shape[:-1], self.n_prefixes, self.vocabulary_size)

    def logits(self, theta: Array) -> Array:
        """Return W h_mp, shape (..., M, D)."""
        by_token = theta.reshape(-1, self.width) @ self.states.reshape(-1, self.width).T
        by_prefix = np.swapaxes(by_token.reshape(*theta.shape[:-1], self.vocabulary_size, -1), -1, -2)
        return by_prefix.reshape(*theta.shape[:-1], self.n_prompts, self.n_logits)

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return sum_p c_mp x h_mp, shape (M, d)."""
        heads = np.swapaxes(self._by_prefix(covectors), 1, 2) @ self.states
        return heads.reshape(self.n_prompts, self.dimension)

    def adjoint(self, covectors: Array) -> Array:
        """Return sum_mp c_mp x h_mp, shape (d,)."""
        columns = covectors.reshape(-1, self.vocabulary_size)
        return (columns.T @ self.states.reshape(-1, self.width)).reshape(self.dimension)

    def gram(self) -> Array:
        """Return the inner products of the prefixes' hidden states times the identity of the tokens, shape (M, D, D)."""
        blocks = self.prefix_gram[:, :, None, :, None] * np.eye(self.vocabulary_size)[:, None, :]
        return blocks.reshape(self.n_prompts, self.n_logits, self.n_logits)

    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d); refused where that matrix is too large to be wanted."""
        check_square(self.dimension)
        sizes = (self.n_prefixes, self.vocabulary_size)
        blocks = forms.reshape(self.n_prompts, *sizes, *sizes)
        product = np.einsum("mpvqw,mph,mqi->vhwi", blocks, self.states, self.states, optimize=True)
        return product.reshape(self.dimension, self.dimension)

    def squared_norms(self, covectors: Array) -> Array:
        """Return ||sum_p c_p x h_mp||^2, shape (M, K)."""
        columns = np.swapaxes(self._by_prefix(covectors), -1, -2)
        return np.maximum(((columns @ self.prefix_gram[:, None]) * columns).sum(axis=(-2, -1)), 0.0)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        prefixes, tokens = np.divmod(np.where(paths.taken, paths.edges, 0), self.vocabulary_size)
        of_tokens = less_mean(np.eye(self.vocabulary_size), self._by_prefix(probabilities)[..., None], axis=-2)
        covectors = of_tokens[:, prefixes, tokens] * paths.taken[:, :, None]
        products = self.prefix_gram[:, prefixes[:, :, None], prefixes[:, None, :]]
        for s in range(paths.horizon):
            for t in range(paths.horizon):
                products[..., s, t] *= np.einsum("mkv,mkv->mk", covectors[:, :, s], covectors[:, :, t])
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
