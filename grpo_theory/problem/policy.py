"""A bandit: rewards of responses on finitely many values; and softmax policies: tabular, linear, and the head of a network."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.logits import FeatureMap, HeadMap, LogitMap, Paths, SmoothMap, TabularMap
from grpo_theory.validation import (
    Array,
    Integers,
    as_count,
    as_distribution,
    as_numbers,
    as_positive,
    as_real_array,
    check_room,
    check_shape,
    check_within,
    read_only,
)

LARGEST_PARAMETER = 1e100
"""Squares of parameters and of their logits are numbers up to it."""


class Policy:
    """A softmax policy: a softmax over the tokens at every prefix of a tree of responses.

    The score of a response is Phi_m' c. The logit gradient c is the sum over its tokens of e_edge - (the probabilities at the
    token's prefix). Phi contains the derivatives of the logits in theta: `tangent(theta)`, the same everywhere if the logits
    are linear.

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
    lengths : ndarray of int64, shape (K,)
        The numbers of tokens of the responses.

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
    lengths: Integers
    largest_parameter = LARGEST_PARAMETER

    def __init__(self, logit_map: SmoothMap, paths: Paths | None = None) -> None:
        if not isinstance(logit_map, SmoothMap):
            raise TypeError(f"logit_map must be a LogitMap, got {logit_map!r}")
        if paths is not None and not isinstance(paths, Paths):
            raise TypeError(f"paths must be Paths or None, got {paths!r}")
        self._set_map(logit_map)
        self.paths = Paths(np.arange(logit_map.n_logits)[:, None], logit_map.n_logits) if paths is None else paths
        self.lengths = self.paths.lengths
        if self.paths.n_logits != logit_map.n_logits:
            raise ValueError(
                f"logit_map must have as many logits as the paths have edges, {self.paths.n_logits}, got {logit_map.n_logits}"
            )

    point_kind: ClassVar[type]
    """The class of a problem's points, see `Problem.at`."""

    def _set_map(self, logit_map: SmoothMap) -> None:
        self.logit_map = logit_map
        self.n_prompts, self.n_logits, self.dimension = logit_map.n_prompts, logit_map.n_logits, logit_map.dimension

    @property
    def n_responses(self) -> int:
        """The number of responses K to each prompt."""
        return self.paths.n_responses

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
        """Return the default parameters of a problem, shape (d,): zeros; raise where nothing is learned from there.

        Examples
        --------
        >>> import numpy as np, grpo_theory as gt
        >>> gt.TwoLayerSoftmax(np.eye(2), width=3, n_responses=2).starting_point()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: theta must be given for TwoLayerSoftmax(M=2, K=2, d=12), whose features are learned: at zeros all its ...
        """
        if self.logit_map.learns_features:
            raise ValueError(
                f"theta must be given for {self!r}, whose features are learned: at zeros all its gradients vanish, and training "
                "stays there. Draw a start with start(rng=...) of the policy, or of a chain's network"
            )
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
        if theta is None and not self.is_linear:
            raise ValueError(f"theta must be given for the derivatives of {self!r}: its logits are not linear")
        tangent = self.tangent(np.zeros(self.dimension) if theta is None else theta)
        return np.moveaxis(tangent.logits(np.eye(self.dimension)), 0, -1)

    def _as_vectors(self, vectors: ArrayLike, name: str) -> Array:
        vectors = as_numbers(name, vectors)
        if vectors.ndim == 0 or vectors.shape[-1] != self.dimension:
            raise ValueError(f"{name} must have shape (..., d) with d = {self.dimension}, got {vectors.shape}")
        return vectors

    def log_probabilities(self, theta: ArrayLike) -> Array:
        """Return log pi(k | m), shape (..., M, K), for theta of shape (..., d)."""
        # log pi(y) = sum_t (s_edge t - log sum exp(s at the prefix)) (docs/derivations.md, section 15).
        return self.paths.along(self.paths.log_probabilities(self.logits(theta)))

    def probabilities(self, theta: ArrayLike) -> Array:
        """Return pi(k | m), shape (M, K)."""
        return np.exp(self.log_probabilities(self.check_theta(theta)))

    def scores(self, theta: ArrayLike) -> Array:
        """Return the score vectors grad log pi(k | m), shape (M, K, d)."""
        tangent, probabilities = self.tangent(theta), np.exp(self.paths.log_probabilities(self.logits(theta)))
        shape = (self.n_prompts, self.n_responses, self.dimension)
        check_room("the scores of all responses", shape, "ask for moments, or take components along directions (gt.Pilot)")
        logit_gradients = self.paths.centre(self.paths.incidence, probabilities[:, None, :])
        # W_k = Phi_m' c_k with c_k = sum_t (e_edge t - p_prefix t) (docs/derivations.md, section 15).
        return np.stack([tangent.adjoint_by_prompt(logit_gradients[:, k]) for k in range(self.n_responses)], axis=1)

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


LARGEST_REWARD = 1e60
"""Fourth powers of rewards, which errors of squares hold, are numbers up to it."""


class Bandit:
    """A contextual bandit: M prompts, K responses per prompt, rewards on finitely many values.

    Parameters
    ----------
    success : array_like, shape (M, K)
        Probability of reward 1 (else 0) of each response to each prompt, in [0, 1].
    prompt_weights : array_like, shape (M,), optional
        Probabilities f of the prompts; uniform if omitted.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The reward values.
    probabilities : ndarray, shape (M, K, L)
        Probability of each value, given prompt and response.
    prompt_weights : ndarray, shape (M,)
        Probabilities of the prompts.
    n_prompts, n_responses : int
        M and K.

    Raises
    ------
    ValueError
        If an entry is not finite, a probability lies outside [0, 1] or does not sum to one, or a shape does not fit.

    See Also
    --------
    Bandit.from_law : rewards on any finite set of values.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> bandit = gt.Bandit([[0.9, 0.2], [0.4, 0.4]], prompt_weights=[0.75, 0.25])
    >>> bandit.values.tolist(), bandit.probabilities.shape
    ([0.0, 1.0], (2, 2, 2))
    >>> bandit.at_prompt(1).prompt_weights.tolist()
    [0.0, 1.0]
    """

    values: Array
    probabilities: Array
    prompt_weights: Array
    n_prompts: int
    _shape = "(M, K, L)"

    def __init__(self, success: ArrayLike, prompt_weights: ArrayLike | None = None) -> None:
        success = as_real_array("success", success, self._shape.count(","))
        try:
            check_within("success", success, 0.0, 1.0)
        except ValueError as error:
            law = f"gt.{type(self).__name__}.from_law(values, probabilities)"
            raise ValueError(f"{error}: these are probabilities of reward 1; other rewards have {law}") from None
        self._set([0.0, 1.0], np.stack([1.0 - success, success], axis=-1), prompt_weights)

    @classmethod
    def from_law(cls, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None = None) -> Self:
        """Make a bandit whose rewards take any finite set of values.

        Parameters
        ----------
        values : array_like, shape (L,)
            Distinct reward values, within +-1e60; format plus accuracy, for instance, is (0, 1, 2).
        probabilities : array_like, shape (M, K, L)
            Probability of each value, given prompt and response. The sum along the last axis is one, within the precision of the
            array's type. If the type is shorter than float64, the array is then divided by that sum.
        prompt_weights : array_like, shape (M,), optional
            Probabilities of the prompts; uniform if omitted.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> graded = gt.Bandit.from_law([0.0, 1.0, 2.0], [[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])
        >>> gt.moments(gt.Problem(graded, gt.TabularSoftmax(1, 2)), [0.0, 0.0]).value.round(6).tolist()
        [1.2]
        """
        bandit = cls.__new__(cls)
        bandit._set(values, probabilities, prompt_weights)
        return bandit

    def _set(self, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None) -> None:
        self.values = array = as_real_array("values", values, 1)
        if np.unique(array).size != array.size:
            raise ValueError(f"values must be distinct, got {array.tolist()}")
        check_within("values", array, -LARGEST_REWARD, LARGEST_REWARD)
        law = as_distribution("probabilities", probabilities, self._shape.count(",") + 1)
        check_shape("probabilities", law, (*law.shape[:-1], array.size), self._shape)
        if prompt_weights is not None:
            prompt_weights = as_distribution("prompt_weights", prompt_weights, 1)
        self.prompt_weights = self._keep(law, prompt_weights)
        self.n_prompts = self.prompt_weights.size
        read_only((array, law, self.prompt_weights))

    def _keep(self, law: Array, weights: Array | None) -> Array:
        """Keep the law of the rewards, and return the weights of the prompts (M,): equal ones for None."""
        self.probabilities, n_prompts = law, len(law)
        if weights is None:
            return np.full(n_prompts, 1.0 / n_prompts)
        check_shape("prompt_weights", weights, (n_prompts,), "(M,), one for each prompt")
        return weights

    @property
    def n_responses(self) -> int:
        """The number of responses K to each prompt."""
        return self.probabilities.shape[1]

    @property
    def mean_reward(self) -> Array:
        """E[Z | prompt, response], shape (M, K)."""
        return self.probabilities @ self.values

    def reward_law(self, probabilities: Array) -> Array:
        """Return the probability of each reward value, shape (..., M, L), for probabilities of the responses (..., M, K)."""
        return np.einsum("...mk,mkl->...ml", probabilities, self.probabilities)

    def at_prompt(self, prompt: int) -> Self:
        """Restrict the bandit to one prompt, so that its gradient is g(x) instead of E g(X)."""
        if self.n_prompts == 0:
            raise ValueError("prompt is not known before a chain says how many there are: use at_prompt of the Problem")
        if as_count("prompt", prompt, 0) >= self.n_prompts:
            raise ValueError(f"prompt must be below the number of prompts {self.n_prompts}, got {prompt}")
        made = copy(self)
        made.prompt_weights = read_only(np.eye(self.n_prompts)[prompt])
        return made

    def __repr__(self) -> str:
        return f"Bandit(M={self.n_prompts}, K={self.n_responses}, values={self.values.tolist()})"


@dataclass(frozen=True, eq=False)
class KL:
    """The penalty in the objective E[Z] - strength * E KL(pi(.|X) || reference(.|X)).

    The penalty is part of the reward, unless an estimator's composition puts it into the loss.  The reward of response k to
    prompt m becomes Z - strength * log(pi(k|m) / reference(k|m)).  The score-function gradient with that reward is the gradient
    of the objective, because E[W] = 0.

    Parameters
    ----------
    strength : float
        Above 0, in units of reward per nat.
    reference : array_like, shape (M, K)
        The reference policy's probabilities of the responses, all positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> penalty = gt.KL(0.1, [[0.5, 0.5]])
    >>> problem = gt.Problem(gt.Bandit([[0.9, 0.4]]), gt.TabularSoftmax(1, 2), kl=penalty)
    >>> round(float(gt.objective(problem, [1.0, 0.0])), 4)
    0.7544
    >>> penalty.check_reference((1, 2)).tolist()
    [[0.5, 0.5]]
    """

    strength: float
    reference: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", as_positive("strength", self.strength))
        reference = as_distribution("reference", self.reference, 2)
        if reference.min() <= 0.0:
            raise ValueError(f"reference must be positive everywhere, got {reference.min():g}")
        object.__setattr__(self, "reference", read_only(reference))

    def check_reference(self, shape: tuple[int, ...]) -> Array:
        """Return the reference, shape (M, K); raise unless `shape` is that."""
        reference = np.asarray(self.reference)
        check_shape("reference", reference, shape, "(M, K), the policy's prompts and responses")
        return reference
