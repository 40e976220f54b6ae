"""Policies with learned features: networks of two layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.logits import FeatureMap, LogitMap, SmoothMap, check_square
from grpo_theory.problem.policy import LARGEST_PARAMETER, Policy
from grpo_theory.validation import Array, Rng, as_count, as_generator, as_positive, as_real_array, check_size, read_only, shown


class Activation(NamedTuple):
    """What a unit makes of its input, and the two derivatives of that, as functions of what it makes."""

    function: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    bend: Callable[[Array], Array]


ACTIVATIONS = {
    "tanh": Activation(np.tanh, lambda h: 1.0 - h**2, lambda h: -2.0 * h * (1.0 - h**2)),
    "relu": Activation(lambda a: np.where(a > 0.0, a, 0.0), lambda h: np.where(h > 0.0, 1.0, 0.0), np.zeros_like),
    "identity": Activation(np.array, np.ones_like, np.zeros_like),
}
"""By name.  With "identity" the network is linear in its inputs, and still not in its parameters."""


class TwoLayerTangent(LogitMap):
    """The derivatives of the logits of a `TwoLayerMap` at one theta.

    Of logit (m, k) they are scale W2_kj act'(a_mj) x_mi in W1_ji, with a = W1 x, and scale act(a_mj) in W2_kj.  The Gram matrices
    are scale^2 (|h_m|^2 I + |x_m|^2 S_m S_m'), with h = act(a) and S_mkj = W2_kj act'(a_mj).

    Parameters
    ----------
    inputs : ndarray, shape (M, I)
    hidden : ndarray, shape (M, H)
        scale times act(a).
    slopes : ndarray, shape (M, K, H)
        scale times W2_kj act'(a_mj).
    """

    def __init__(self, inputs: Array, hidden: Array, slopes: Array) -> None:
        self.inputs, self.hidden, self.slopes = inputs, hidden, slopes
        self.n_prompts, self.n_logits, self.width = slopes.shape
        self.dimension = self.width * (inputs.shape[1] + self.n_logits)

    def logits(self, theta: Array) -> Array:
        """Return the change of the logits along directions (..., d), to first order, shape (..., M, D)."""
        first, second = split_layers(self, theta)
        # d logit_mk = scale sum_j {W2_kj act'(a_mj) x_m . dW1_j + act(a_mj) dW2_kj} (docs/derivations.md, section 5.1).
        moved = (self.inputs @ np.swapaxes(first, -1, -2))[..., None]
        return (self.slopes @ moved)[..., 0] + self.hidden @ np.swapaxes(second, -1, -2)

    def adjoint_by_prompt(self, logit_gradients: Array) -> Array:
        """Return Phi_m' c_m, shape (M, d)."""
        first = (logit_gradients[:, None, :] @ self.slopes)[:, 0, :, None] * self.inputs[:, None, :]
        second = logit_gradients[:, :, None] * self.hidden[:, None, :]
        return np.concatenate([layer.reshape(self.n_prompts, -1) for layer in (first, second)], axis=1)

    def adjoint(self, logit_gradients: Array) -> Array:
        """Return sum_m Phi_m' c_m, shape (d,)."""
        first = (logit_gradients[:, None, :] @ self.slopes)[:, 0].T @ self.inputs
        return np.concatenate([first.reshape(-1), (logit_gradients.T @ self.hidden).reshape(-1)])

    def gram(self) -> Array:
        """Return Phi_m Phi_m', shape (M, D, D)."""
        # Phi Phi' = |h|^2 I + |x|^2 S S', with the scale in h and in S (docs/derivations.md, section 5.1).
        lengths, powers = ((array**2).sum(axis=1)[:, None, None] for array in (self.hidden, self.inputs))
        return lengths * np.eye(self.n_logits) + powers * (self.slopes @ np.swapaxes(self.slopes, 1, 2))

    def features(self) -> Array:
        """Return Phi written out, shape (M, K, d)."""
        first = self.slopes[:, :, :, None] * self.inputs[:, None, None, :]
        second = np.eye(self.n_logits)[:, :, None] * self.hidden[:, None, None, :]
        return np.concatenate([layer.reshape(self.n_prompts, self.n_logits, -1) for layer in (first, second)], axis=2)

    def congruence(self, matrices: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d); refused where that matrix is too large to be wanted."""
        check_square(self.dimension)
        return FeatureMap(self.features()).congruence(matrices)


class TwoLayerMap(SmoothMap):
    """Logits scale W2 act(W1 x_m) of inputs x_m; theta is W1 (H, I) and then W2 (K, H), each flattened row by row."""

    learns_features = True

    def __init__(self, inputs: Array, width: int, n_logits: int, activation: str, scale: float) -> None:
        self.inputs, self.width, self.activation, self.scale = read_only(inputs), width, activation, scale
        self.n_prompts, self.n_logits = len(inputs), n_logits
        self.dimension = width * (inputs.shape[1] + n_logits)

    def hidden(self, theta: Array) -> Array:
        """Return what the units make of the inputs, act(W1 x_m), shape (..., M, H): the features, for theta of shape (..., d)."""
        return ACTIVATIONS[self.activation].function(self.inputs @ np.swapaxes(split_layers(self, theta)[0], -1, -2))

    def logits(self, theta: Array) -> Array:
        """Return scale W2 act(W1 x_m), shape (..., M, D)."""
        # Training may leave the numbers: what comes of it is infinite or none, and is counted by who asked.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.scale * (self.hidden(theta) @ np.swapaxes(split_layers(self, theta)[1], -1, -2))

    def at(self, theta: Array) -> TwoLayerTangent:
        """Return the derivatives of the logits at theta (d,)."""
        hidden = self.hidden(theta)
        slopes = split_layers(self, theta)[1] * ACTIVATIONS[self.activation].slope(hidden)[:, None, :]
        return TwoLayerTangent(self.inputs, self.scale * hidden, self.scale * slopes)

    def bend(self, theta: Array, slopes: Array) -> Array:
        """Return sum_mk slope_mk times the second derivative of logit (m, k), shape (d, d).

        Units meet only in the logits, so that two parameters of different units have none, nor have two of W2.
        """
        hidden, (first, second) = self.hidden(theta), split_layers(self, theta)
        activation, (width, n_inputs), units = ACTIVATIONS[self.activation], first.shape, np.arange(self.width)
        # d^2 logit_k / dW1_ji dW1_jn = scale W2_kj act''(a_j) x_i x_n, and d^2 logit_k / dW1_ji dW2_kj = scale act'(a_j) x_i.
        within = np.einsum("mj,mi,mn->jin", (slopes @ second) * activation.bend(hidden), self.inputs, self.inputs, optimize=True)
        across = np.einsum("mk,mj,mi->jik", slopes, activation.slope(hidden), self.inputs, optimize=True)
        whole, split = np.zeros((self.dimension, self.dimension)), width * n_inputs
        whole[:split, :split].reshape(width, n_inputs, width, n_inputs)[units, :, units] = within
        mixed = np.zeros((width, n_inputs, self.n_logits, width))
        mixed[units, :, :, units] = across
        whole[:split, split:] = mixed.reshape(split, -1)
        whole[split:, :split] = whole[:split, split:].T
        return self.scale * whole


def split_layers(of: TwoLayerMap | TwoLayerTangent, theta: Array) -> tuple[Array, Array]:
    """Return the layers W1 (..., H, I) and W2 (..., K, H) of a network's parameters (..., d)."""
    lead, n_inputs, split = theta.shape[:-1], of.inputs.shape[1], of.width * of.inputs.shape[1]
    return theta[..., :split].reshape(*lead, of.width, n_inputs), theta[..., split:].reshape(*lead, of.n_logits, of.width)


class TwoLayerSoftmax(Policy):
    """Logits scale W2 act(W1 x_m) of a network of two layers, whose features act(W1 x_m) are learned with the rest.

    Moments and laws at a point are exact, and so is the Hessian, which has the second derivatives of the logits.  Training moves
    both layers.

    Parameters
    ----------
    inputs : array_like, shape (M, I)
        The input x_m of each prompt.  A column of ones gives each unit a bias.
    width : int
        The number H of hidden units; d = H (I + K).
    n_responses : int
        The number K of responses to each prompt.
    activation : {"tanh", "relu", "identity"}, default "tanh"
        What a unit makes of its input.  The second derivative of "relu" is taken as 0, also where it has none.
    scale : float, default 1
        What the network's output is multiplied with.  With 1/sqrt(H) training approaches that of a `LinearSoftmax` as the width
        grows: the features are then those at the start (docs/derivations.md, sections 5 and 5.1).

    Raises
    ------
    ValueError
        If the width is not at least 1, or there is no activation of that name.  Also if an input is not finite, or its size is
        above 1e50.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> policy = gt.TwoLayerSoftmax([[1.0, 0.0], [0.6, 0.8]], width=4, n_responses=3)
    >>> problem = gt.Problem(gt.Bandit([[0.9, 0.1, 0.2], [0.3, 0.2, 0.8]]), policy, theta=policy.start(rng=0))
    >>> float(round(gt.group_size_law(problem, problem.theta).optimum, 2))
    4.98
    """

    # Logits are products of parameters of both layers, and their squares must be numbers.
    largest_parameter = LARGEST_PARAMETER**0.5

    def __init__(self, inputs: ArrayLike, width: int, n_responses: int, activation: str = "tanh", scale: float = 1.0) -> None:
        inputs, width = as_real_array("inputs", inputs, 2), as_count("width", width)
        # They meet parameters in products whose squares must be numbers, too.
        check_size("inputs", inputs, self.largest_parameter)
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {shown(activation)}")
        scale = as_positive("scale", scale)
        if scale > self.largest_parameter:
            raise ValueError(f"scale must be at most {self.largest_parameter:g}, got {scale:g}")
        self.network = TwoLayerMap(inputs, width, as_count("n_responses", n_responses), activation, scale)
        super().__init__(self.network)

    def start(self, rng: Rng | None = None) -> Array:
        """Draw parameters at which the policy is uniform and its features are random, shape (d,).

        Units come in pairs.  The two units of a pair have the same weights in W1, normal with variance 1/I. Their weights in W2
        are opposite, normal with variance 1/(H scale^2).  All logits are therefore 0.  Summed over one unit of each pair, scale
        W2 act(W1 x) is of order 1 whatever the width.  A unit without a partner has zeros in W2.

        Examples
        --------
        >>> import numpy as np, grpo_theory as gt
        >>> policy = gt.TwoLayerSoftmax(np.eye(2), width=4, n_responses=2)
        >>> policy.probabilities(policy.start(rng=0)).round(6).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        """
        generator, network = as_generator(rng), self.network
        n_inputs, pairs = network.inputs.shape[1], network.width // 2
        first = generator.normal(size=(network.width - pairs, n_inputs)) / np.sqrt(n_inputs)
        second = generator.normal(size=(self.n_responses, pairs)) / (network.scale * np.sqrt(network.width))
        rest = np.zeros((self.n_responses, network.width - 2 * pairs))
        # Units come in pairs (u, v) and (u, -v), so that sum_j v_kj act(u_j . x) = 0 (docs/derivations.md, section 5.1).
        layers = np.concatenate([first[:pairs], first]), np.concatenate([second, -second, rest], axis=1)
        return np.concatenate([layer.reshape(-1) for layer in layers])
