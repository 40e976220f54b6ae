"""Policies over long sequences: a softmax over the next token that depends on a state, and tokens that move the state."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.logits import Paths, SharedMap, SmoothMap, log_softmax
from grpo_theory.problem.policy import Policy, not_listed
from grpo_theory.problem.two_layer import TwoLayerMap, TwoLayerSoftmax
from grpo_theory.validation import (
    Array,
    Integers,
    as_array,
    as_count,
    as_real_array,
    cached_array,
    check_room,
    check_shape,
    read_only,
)


class StateNetworkMap(SmoothMap):
    """The logits of every token in every state, from a network whose inputs are the embeddings of the states.

    Parameters
    ----------
    network : TwoLayerMap
        With S inputs, one for each state, and V logits, one for each token.
    edges : ndarray of int64, shape (M, D)
        Which of the S V logits each edge of a prompt has: those of a chain are all of them, the same for each prompt.
    """

    learns_features = True

    def __init__(self, network: TwoLayerMap, edges: Integers) -> None:
        self.network, self.edges = network, edges
        (self.n_prompts, self.n_logits), self.dimension = edges.shape, network.dimension

    def logits(self, theta: Array) -> Array:
        """Return the logits, shape (..., M, D)."""
        by_state = self.network.logits(theta)
        return by_state.reshape(*by_state.shape[:-2], -1)[..., self.edges]

    def features(self, theta: Array) -> Array:
        """Return the derivatives of the logits of all states at theta (d,), shape (S V, d)."""
        shape = self.network.n_prompts * self.network.n_logits, self.dimension
        check_room("the derivatives of the logits of all states", shape, "take a narrower network, or fewer states")
        return self.network.at(theta).features().reshape(shape)

    def at(self, theta: Array) -> SharedMap:
        """Return the derivatives of the logits at theta (d,): the map of a chain with these features."""
        return SharedMap(self.n_prompts, self.n_logits, self.features(theta))

    def bend(self, theta: Array, slopes: Array) -> Array:
        """Return sum_md slope_md times the second derivative of logit (m, d), shape (d, d), for slopes (M, D)."""
        by_state = np.zeros((self.network.n_prompts, self.network.n_logits))
        # The slopes of all prompts, f_m a_m(s, v), add up before they multiply d^2 logit(s, v)/d theta^2 (docs/derivations.md,
        # section 15.1).
        np.add.at(by_state.reshape(-1), self.edges, slopes)
        return self.network.bend(theta, by_state)


END = -1
"""Marks a final state: written in place of the next state for every token of a state in which responses end."""

LONGEST = 1 << 16
"""The longest responses that are carried: 65,536 tokens."""


class TokenChain(Policy):
    """A policy for long responses: a softmax over the next token that depends on a state, which each token changes.

    Responses are not listed.  Sums over them are carried from state to state (docs/derivations.md, section 15), so a thousand
    tokens cost a thousand times as much as one.  A response ends with the end token, or when it has as many tokens as the
    horizon.  It also ends when it comes into a state in which responses end.

    Parameters
    ----------
    transitions : array_like of int, shape (S, V)
        The state after token v in state s; -1 for every token of a state in which a response ends.
    horizon : int
        The largest number of tokens T of a response.
    end_token : int, optional
        The token, from 0 to V - 1, after which a response ends, in the state to which it leads.
    features : array_like, shape (S, V, d), optional
        The feature vector of every token in every state, so that its logit is the product with theta (d,).  If omitted every
        state has V logits of its own, d = S V.
    starts : array_like of int, shape (M,), optional
        The state in which the response to each prompt begins; one prompt that begins in state 0 if omitted.
    network : TwoLayerSoftmax, optional
        In place of features, a network of two layers.  It has an input for each state, the state's embedding, and a response for
        each token.  The logits in state s are scale W2 act(W1 x_s), and the network's parameters are the chain's.  The network's
        `start` draws some.

    Attributes
    ----------
    transitions : ndarray of int64, shape (S, V)
    final : ndarray of bool, shape (S,)
        In which states responses end.
    ends : ndarray of bool, shape (S, V)
        Whether a response ends with a token, whatever its length so far.
    starts : ndarray of int64, shape (M,)
    horizon, n_states, vocabulary_size : int
        T, and the numbers S of states and V of tokens.

    Raises
    ------
    ValueError
        If a transition leads to no state, a response begins in a state in which it ends, or the end token is no token.  Also if a
        state in which responses do not end cannot be left, and there is no end token.  Also if a shape does not fit, or both
        features and a network are given.

    Examples
    --------
    Two states, of which the second is reached and left by token 1; it pays to be there after 1,024 tokens.

    >>> import grpo_theory as gt
    >>> parity = gt.TokenChain([[0, 1], [1, 0]], horizon=1024)
    >>> problem = gt.Problem(gt.StateRewards([0.0, 1.0]), parity, theta=[0.0, -7.0, 0.0, -5.0])
    >>> round(gt.efficiency(problem, problem.theta, "grpo", batch_size=64, group_size=16), 3)
    0.987

    With features that are learned from an embedding of each state, which is here the last token:

    >>> network = gt.TwoLayerSoftmax([[1.0, 0.0], [0.6, 0.8]], width=4, n_responses=2)
    >>> learned = gt.TokenChain([[0, 1], [0, 1]], horizon=16, network=network)
    >>> problem = gt.Problem(gt.StateRewards([0.0, 1.0]), learned, theta=network.start(rng=0))
    >>> round(gt.efficiency(problem, problem.theta, "rloo", batch_size=64, group_size=16), 3)
    0.981
    """

    logit_map: SharedMap | StateNetworkMap

    def __init__(
        self,
        transitions: ArrayLike,
        horizon: int,
        end_token: int | None = None,
        features: ArrayLike | None = None,
        starts: ArrayLike | None = None,
        network: TwoLayerSoftmax | None = None,
    ) -> None:
        self.transitions = _as_states("transitions", transitions, 2)
        self.n_states, self.vocabulary_size = n_states, vocabulary_size = self.transitions.shape
        self.horizon = as_count("horizon", horizon)
        if self.horizon > LONGEST:
            raise ValueError(f"horizon must be at most {LONGEST:,} tokens, got {horizon:,}")
        if end_token is not None and as_count("end_token", end_token, 0) >= vocabulary_size:
            raise ValueError(f"end_token must be a token from 0 to V - 1 = {vocabulary_size - 1}, got {end_token}")
        self.end_token = end_token
        self.final = (self.transitions == END).all(axis=1)
        wrong = np.argwhere(((self.transitions < 0) | (self.transitions >= n_states)) & ~self.final[:, None])
        if wrong.size:
            state, token = (int(one) for one in wrong[0])
            raise ValueError(
                f"transitions must lead to states from 0 to S - 1 = {n_states - 1}, got {int(self.transitions[state, token])} "
                f"after token {token} in state {state}. In a state in which responses end they must be -1 for all tokens"
            )
        self.ends = self.final[self.transitions] | (np.arange(vocabulary_size) == end_token)
        self.starts = _as_states("starts", [0] if starts is None else starts, 1)
        if self.starts.max() >= n_states or self.starts.min() < 0:
            raise ValueError(f"starts must be states from 0 to S - 1 = {n_states - 1}, got {self.starts.tolist()}")
        if self.final[self.starts].any():
            raise ValueError(
                f"starts must be states in which a token is drawn, got {int(self.starts[self.final[self.starts]][0])}, in which "
                "responses end"
            )
        # Where no token ends a response, those of a state that cannot be left are drawn to no effect.
        stuck = np.flatnonzero((self.transitions == np.arange(n_states)[:, None]).all(axis=1))
        if end_token is None and stuck.size:
            raise ValueError(
                f"transitions must lead out of every state in which responses do not end, and state {int(stuck[0])} cannot be "
                "left. If responses end there, write -1 for each of its tokens; else give an end_token"
            )
        read_only((self.transitions, self.final, self.ends, self.starts))
        if network is None:
            rows = None
            if features is not None:
                array = as_real_array("features", features, 3)
                check_shape("features", array[..., 0], self.transitions.shape, "(S, V), states and tokens, before (d,)")
                rows = array.reshape(-1, array.shape[-1])
            self._set_map(SharedMap(self.starts.size, n_states * vocabulary_size, rows))
        else:
            if not isinstance(network, TwoLayerSoftmax):
                raise TypeError(f"network must be a TwoLayerSoftmax or None, got {network!r}")
            if features is not None:
                raise ValueError("features and network must not both be given: a network takes the place of features")
            if (network.n_prompts, network.n_responses) != self.transitions.shape:
                raise ValueError(
                    "network must have an input for each of the chain's states and a response for each of its tokens. "
                    f"These are (S, V) = {self.transitions.shape}, and it has {network.n_prompts} inputs and "
                    f"{network.n_responses} responses"
                )
            edges = np.broadcast_to(np.arange(self.transitions.size), (self.starts.size, self.transitions.size))
            self._set_map(StateNetworkMap(network.network, edges))
            self.largest_parameter = network.largest_parameter

    @property
    def paths(self) -> Paths:  # type: ignore[override]
        """Responses are not listed; raises `NotListedError`."""
        return not_listed("the list of responses")

    @cached_array
    def lengths(self) -> Integers:
        """The numbers of tokens that a response can have, in rising order."""
        lengths, here = [], np.zeros(self.n_states, dtype=np.bool_)
        here[self.starts] = True
        for length in range(1, self.horizon + 1):
            taken = np.broadcast_to(here[:, None], self.ends.shape)
            if length == self.horizon or (taken & self.ends).any():
                lengths.append(length)
            here = np.zeros(self.n_states, dtype=np.bool_)
            here[self.transitions[taken & ~self.ends]] = True
            if not here.any():
                break
        return np.array(lengths)

    def token_log_probabilities(self, theta: ArrayLike) -> Array:
        """Return the log probability of each token in each state, shape (..., S, V), for theta of shape (..., d).

        Examples
        --------
        >>> import numpy as np, grpo_theory as gt
        >>> chain = gt.TokenChain([[0, 1], [1, 0]], horizon=1024)
        >>> np.exp(chain.token_log_probabilities([0.0, 0.0, 0.0, 1.0])).round(3).tolist()
        [[0.5, 0.5], [0.269, 0.731]]
        """
        logits = self.logits(theta)[..., 0, :]  # those of all prompts are the same
        return log_softmax(logits.reshape(*logits.shape[:-1], *self.transitions.shape))

    def __repr__(self) -> str:
        sizes = f"S={self.n_states}, V={self.vocabulary_size}, T={self.horizon}, M={self.n_prompts}, d={self.dimension}"
        return f"TokenChain({sizes})"


def _as_states(name: str, value: ArrayLike, ndim: int) -> Integers:
    array = as_array(name, value)
    if array.ndim != ndim or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be an array of integers with {ndim} dimensions, got shape {array.shape} of {array.dtype}")
    return array.astype(np.int64)
