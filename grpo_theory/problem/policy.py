"""Softmax policies: tabular, linear in features, and the output layer of a network."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers
from grpo_theory.problem.logit_map import FeatureMap, HeadMap, LogitMap, SmoothMap, TabularMap
from grpo_theory.problem.paths import Paths, single_tokens
from grpo_theory.validation import as_count, as_numbers, as_real_array, check_room, check_shape, check_within

LARGEST_PARAMETER = 1e100
"""Squares of parameters and of their logits are numbers up to it."""


class Policy:
    """A softmax policy: a softmax over the tokens at every prefix of a tree of responses.

    The score of a response is Phi_m' c. The covector c is the sum over its tokens of e_edge - (the probabilities at the token's
    prefix). Phi contains the derivatives of the logits in theta: `tangent(theta)`, the same everywhere if the logits are linear.

    Parameters
    ----------
    logit_map : LogitMap or SmoothMap
        The map from theta (d,) to logits (M, D).
    paths : Paths, optional
        The K responses as paths along D edges; if omitted each response is one token, K = D.

    Attributes
    ----------
    n_prompts, n_logits, dimension : int
        The numbers of prompts M, of logits D at each prompt, and of parameters d.

    Raises
    ------
    ValueError
        If the map and the paths do not have the same number of logits.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> policy = gt.TabularSoftmax(2, 3)
    >>> theta = policy.starting_point()
    >>> policy.probabilities(theta).round(3)[0].tolist(), policy.scores(theta).shape
    ([0.333, 0.333, 0.333], (2, 3, 6))
    >>> bool(np.allclose(np.exp(policy.log_probabilities(theta)), policy.probabilities(theta)))
    True
    >>> policy.logits(theta).shape, policy.jacobian().shape, policy.check_theta([0.0] * 6).shape
    ((2, 3), (2, 3, 6), (6,))
    >>> policy.tangent(theta) is policy.logit_map, policy.logit_slopes(theta, np.eye(6)).shape  # linear logits
    (True, (6, 2, 3))
    """

    logit_map: SmoothMap
    largest_parameter = LARGEST_PARAMETER

    def __init__(self, logit_map: SmoothMap, paths: Paths | None = None) -> None:
        if not isinstance(logit_map, SmoothMap):
            raise TypeError(f"logit_map must be a LogitMap, got {logit_map!r}")
        if paths is not None and not isinstance(paths, Paths):
            raise TypeError(f"paths must be Paths or None, got {paths!r}")
        self._set_map(logit_map)
        self.paths = single_tokens(logit_map.n_logits) if paths is None else paths
        if self.paths.n_logits != logit_map.n_logits:
            raise ValueError(
                f"logit_map must have as many logits as the paths have edges, {self.paths.n_logits}, got {logit_map.n_logits}"
            )

    def _set_map(self, logit_map: SmoothMap) -> None:
        self.logit_map = logit_map
        self.n_prompts, self.n_logits, self.dimension = logit_map.n_prompts, logit_map.n_logits, logit_map.dimension

    @property
    def n_responses(self) -> int:
        """The number of responses K to each prompt."""
        return self.paths.n_responses

    @property
    def lengths(self) -> Integers:
        """The numbers of tokens of the responses, shape (K,)."""
        return self.paths.lengths

    def check_theta(self, theta: ArrayLike, name: str = "theta") -> Array:
        """Return parameters as a finite float64 array of shape (d,)."""
        theta = as_real_array(name, theta, 1)
        check_shape(name, theta, (self.dimension,), "(d,), the policy's parameters")
        check_within(name, theta, -self.largest_parameter, self.largest_parameter)
        return theta

    @property
    def is_linear(self) -> bool:
        """Whether logits are linear in theta: features are then frozen."""
        return isinstance(self.logit_map, LogitMap)

    def starting_point(self) -> Array:
        """Return the default parameters of a problem, shape (d,): zeros."""
        return np.zeros(self.dimension)

    def logits(self, vectors: ArrayLike, name: str = "theta") -> Array:
        """Return the logits, shape (..., M, D), at vectors of shape (..., d); Phi v if they are linear."""
        return self.logit_map.logits(self._as_vectors(vectors, name))

    def tangent(self, theta: ArrayLike) -> LogitMap:
        """Return Phi at theta (d,): the linear map from a small step of the parameters to that of the logits."""
        return self.logit_map.at(self.check_theta(theta))

    def logit_slopes(self, theta: ArrayLike, directions: ArrayLike, name: str = "directions") -> Array:
        """Return Phi v at theta (d,), shape (..., M, D), for directions v of shape (..., d)."""
        return self.tangent(theta).logits(self._as_vectors(directions, name))

    def jacobian(self, theta: ArrayLike | None = None) -> Array:
        """Return Phi written out, the derivatives of the logits in theta, shape (M, D, d).

        Parameters
        ----------
        theta : array_like, shape (d,), optional
            Where; needed only if the logits are not linear.
        """
        for shape in ((self.n_prompts, self.n_logits, self.dimension), (self.dimension, self.dimension)):
            check_room("the derivatives of all logits", shape, "logit_slopes(theta, directions) has those along a few directions")
        if isinstance(self.logit_map, LogitMap):
            tangent = self.logit_map
        elif theta is None:
            raise ValueError(f"theta must be given for the derivatives of {self!r}: its logits are not linear")
        else:
            tangent = self.tangent(theta)
        return np.moveaxis(tangent.logits(np.eye(self.dimension)), 0, -1)

    def _as_vectors(self, vectors: ArrayLike, name: str) -> Array:
        vectors = as_numbers(name, vectors)
        if vectors.ndim == 0 or vectors.shape[-1] != self.dimension:
            raise ValueError(f"{name} must have shape (..., d) with d = {self.dimension}, got {vectors.shape}")
        return vectors

    def log_probabilities(self, theta: ArrayLike) -> Array:
        """Return log pi(k | m), shape (..., M, K), for theta of shape (..., d)."""
        return self.paths.along(self.paths.log_probabilities(self.logits(theta)))

    def probabilities(self, theta: ArrayLike) -> Array:
        """Return pi(k | m), shape (M, K)."""
        return np.exp(self.log_probabilities(self.check_theta(theta)))

    def scores(self, theta: ArrayLike) -> Array:
        """Return the score vectors grad log pi(k | m), shape (M, K, d)."""
        tangent, probabilities = self.tangent(theta), np.exp(self.paths.log_probabilities(self.logits(theta)))
        shape = (self.n_prompts, self.n_responses, self.dimension)
        check_room("the scores of all responses", shape, "ask for moments, or take components along directions (gt.Pilot)")
        covectors = self.paths.centre(self.paths.incidence, probabilities[:, None, :])
        return np.stack([tangent.adjoint_by_prompt(covectors[:, k]) for k in range(self.n_responses)], axis=1)

    def __repr__(self) -> str:
        sizes = f"M={self.n_prompts}, K={self.n_responses}"
        sizes += "" if self.n_logits == self.n_responses else f", D={self.n_logits}"
        return f"{type(self).__name__}({sizes}, d={self.dimension})"


class TabularSoftmax(Policy):
    """A free logit for every (prompt, response): theta is the (M, K) table of logits, flattened row by row; d = M K.

    Parameters
    ----------
    n_prompts, n_responses : int
        The numbers M and K.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> policy = gt.TabularSoftmax(2, 3)
    >>> policy.dimension, policy.probabilities([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]).round(3).tolist()
    (6, [[0.333, 0.333, 0.333], [0.576, 0.212, 0.212]])
    """

    def __init__(self, n_prompts: int, n_responses: int) -> None:
        super().__init__(TabularMap(as_count("n_prompts", n_prompts), as_count("n_responses", n_responses)))


class LinearSoftmax(Policy):
    """Logits phi(m, k) . theta with dense features.

    Parameters
    ----------
    features : array_like, shape (M, K, d)
        The feature vector of every (prompt, response).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> policy = gt.LinearSoftmax([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> policy.dimension, policy.probabilities([1.0, 0.0]).round(3).tolist()
    (2, [[0.731, 0.269], [0.731, 0.269]])
    """

    def __init__(self, features: ArrayLike) -> None:
        super().__init__(FeatureMap(as_real_array("features", features, 3)))


class SoftmaxHead(Policy):
    """The output head of a network over frozen hidden states: logits W h_m, score (e_k - pi_m) x h_m.

    Parameters
    ----------
    hidden : array_like, shape (M, H)
        The hidden state h_m of each prompt.
    n_responses : int
        The number K of head rows; theta is the head W (K, H), flattened row by row, d = K H.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> head = gt.SoftmaxHead([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]], n_responses=4)
    >>> head.dimension, head.probabilities(head.starting_point())[0].tolist()
    (12, [0.25, 0.25, 0.25, 0.25])
    """

    def __init__(self, hidden: ArrayLike, n_responses: int) -> None:
        super().__init__(HeadMap(as_real_array("hidden", hidden, 2), as_count("n_responses", n_responses)))
