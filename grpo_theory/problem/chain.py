"""Policies over sequences: chains, whose next token depends on a state that tokens move, and trees, whose responses are listed.

Tables name the edges and the responses of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.logits import FeatureMap, LogitMap, Paths, PrefixHeadMap, SharedMap, SmoothMap, TabularMap, log_softmax
from grpo_theory.problem.policy import Bandit, Policy
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
    typed,
)

if TYPE_CHECKING:
    import pandas as pd


class NotListedError(ValueError):
    """Raised when a `TokenChain` is asked for something that needs a list of its responses, such as their number or scores.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.problem import NotListedError
    >>> chain = gt.TokenChain([[0, 1], [1, 0]], horizon=1024)
    >>> try:
    ...     chain.probabilities([0.0, 0.0, 0.0, 0.0])
    ... except NotListedError:
    ...     print(chain.token_log_probabilities([0.0, 0.0, 0.0, 0.0]).shape)
    (2, 2)
    """


class StateRewards(Bandit):
    """Rewards of a `TokenChain`: their law depends only on the state in which the response ends.

    Parameters
    ----------
    success : array_like, shape (S,)
        Probability of reward 1 (else 0) of a response that ends in each state, in [0, 1].
    prompt_weights : array_like, shape (M,), optional
        Probabilities f of the prompts, which are the chain's starts; uniform if omitted.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The reward values.
    state_probabilities : ndarray, shape (S, L)
        Probability of each value, given the state in which the response ends.
    prompt_weights : ndarray, shape (M,)
    n_states, n_prompts : int
        S and M. Without weights M is 0, and the chain's starts are equally likely.

    Raises
    ------
    ValueError
        If an entry is not finite, a probability lies outside [0, 1] or does not sum to one, or a shape does not fit.

    See Also
    --------
    StateRewards.from_law : rewards on any finite set of values; the probabilities have shape (S, L).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> rewards = gt.StateRewards([0.0, 0.5, 1.0])
    >>> rewards.state_probabilities.tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> rewards.for_starts(2).prompt_weights.tolist(), rewards.for_starts(2).at_prompt(1).prompt_weights.tolist()
    ([0.5, 0.5], [0.0, 1.0])
    >>> gt.StateRewards.from_law([-1.0, 0.0, 1.0], [[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]).values.tolist()
    [-1.0, 0.0, 1.0]
    """

    state_probabilities: Array
    _shape = "(S, L)"

    def _keep(self, law: Array, weights: Array | None) -> Array:
        """Keep the law of the rewards, and return the weights: none until a problem says how many starts there are."""
        self.state_probabilities, self.n_states = law, len(law)
        return np.empty(0) if weights is None else weights

    @property
    def probabilities(self) -> Array:  # type: ignore[override]
        """Responses are not listed; raises `NotListedError`."""
        return not_listed("the reward law of every response")

    def for_starts(self, n_starts: int) -> StateRewards:
        """Return the same rewards with weights for so many prompts; raise if there are weights for another number."""
        if self.prompt_weights.size == 0:
            return self.from_law(self.values, self.state_probabilities, np.full(n_starts, 1.0 / n_starts))
        check_shape("prompt_weights", self.prompt_weights, (n_starts,), "(M,), one for each of the chain's starts")
        return self

    def __repr__(self) -> str:
        return f"StateRewards(S={self.n_states}, values={self.values.tolist()})"


def not_listed(what: str) -> NoReturn:
    """Raise: a chain's responses are not listed."""
    raise NotListedError(
        f"{what} is not known of a TokenChain, whose responses are not listed. Without a list there are moments, objective, "
        "gradient_law, efficiency, group_size_law, simulate_gradients and simulate_training. Use problem.listed() for the same "
        "problem as a tree of at most 4,096 responses"
    )


class StateNetworkMap(SmoothMap):
    """The logits of every token in every state, from a network whose inputs are the embeddings of the states.

    Parameters
    ----------
    network : TwoLayerMap
        With S inputs, one for each state, and V logits, one for each token.
    edges : ndarray of int64, shape (M, D)
        Which of the S V logits each edge of a prompt has.
    listed : bool, default False
        Whether the edges are those of listed responses; those of a chain are all of them, the same for each prompt.
    """

    learns_features = True

    def __init__(self, network: TwoLayerMap, edges: Integers, *, listed: bool = False) -> None:
        self.network, self.edges, self.listed = network, edges, listed
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

    def at(self, theta: Array) -> SharedMap | FeatureMap:
        """Return the derivatives of the logits at theta (d,): the map of a chain, or of listed responses, with these features."""
        features = self.features(theta)
        return FeatureMap(features[self.edges]) if self.listed else SharedMap(self.n_prompts, self.n_logits, features)

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


MAXIMUM_RESPONSES = 4096
"""Trees with more responses are refused, because every exact sum runs over all of them."""


Tokens = tuple[int, ...]
Finished = dict[Tokens, tuple[list[int], int]]
"""The edges and the last state of responses, by their tokens."""


class TokenTree(Policy):
    """A policy over short sequences: tokens are drawn one by one from a softmax at every prefix, and responses are listed.

    A response ends with the end token, or when it has reached the horizon.  Responses are numbered in lexicographic order of
    their tokens; `responses` lists them.  With horizon 1 the policy is a bandit's: `TabularSoftmax`, or `LinearSoftmax` if
    there are features.

    Parameters
    ----------
    n_prompts : int
        The number of prompts M.
    vocabulary_size : int
        The number of tokens V.
    horizon : int
        The largest number of tokens T of a response.
    end_token : int, optional
        The token, from 0 to V - 1, after which a response ends; if omitted all responses have T tokens.
    features : array_like, shape (M, D, d), optional
        The feature vector of every (prompt, edge), so that the logit of an edge is its product with theta (d,).  The D edges are
        the pairs (prefix, token).  Prefixes are in order of their length and then of their tokens.  If features are omitted every
        edge has a logit of its own, d = M D.
    hidden : array_like, shape (M, P, H), optional
        In place of features, the hidden state of every (prompt, prefix), P = D / V. Theta is then a head W (V, H), flattened row
        by row, and the logits at a prefix are W h.

    Attributes
    ----------
    responses : tuple of tuple of int
        The tokens of the K responses.
    prefixes : tuple of tuple of int
        The tokens of the D / V prefixes after which another token is drawn; the first is empty.

    Raises
    ------
    ValueError
        If there are more than 4,096 responses, or the end token is not in the vocabulary.  Also if features or hidden states do
        not have the shape, or if both are given.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> tree = gt.TokenTree(1, vocabulary_size=3, horizon=2, end_token=0)
    >>> tree.responses[4]  # the tokens of response 4
    (2, 0)
    >>> tree.prefixes
    ((), (1,), (2,))
    >>> tree.probabilities(tree.starting_point()).round(3)[0].tolist()
    [0.333, 0.111, 0.111, 0.111, 0.111, 0.111, 0.111]
    """

    def __init__(
        self,
        n_prompts: int,
        vocabulary_size: int,
        horizon: int,
        end_token: int | None = None,
        features: ArrayLike | None = None,
        hidden: ArrayLike | None = None,
    ) -> None:
        n_prompts = as_count("n_prompts", n_prompts)
        vocabulary_size, horizon = as_count("vocabulary_size", vocabulary_size), as_count("horizon", horizon)
        if end_token is not None and as_count("end_token", end_token, 0) >= vocabulary_size:
            raise ValueError(f"end_token must be a token from 0 to V - 1 = {vocabulary_size - 1}, got {end_token}")
        if horizon > MAXIMUM_RESPONSES:
            raise ValueError(f"horizon must be at most {MAXIMUM_RESPONSES} tokens, got {horizon}")
        shape = f"vocabulary_size {vocabulary_size} and horizon {horizon}"
        prefixes, _, finished = grow(vocabulary_size, horizon, lambda _, token: (0, token == end_token), 0, shape)
        self.prefixes, self.responses, self.end_token = tuple(prefixes), tuple(sorted(finished)), end_token
        paths = Paths(_edge_table(finished, self.responses), vocabulary_size)
        logit_map: LogitMap = TabularMap(n_prompts, paths.n_logits)
        if features is not None and hidden is not None:
            raise ValueError("features and hidden must not both be given: hidden states take the place of features")
        if features is not None:
            array = as_real_array("features", features, 3)
            check_shape("features", array[..., 0], (n_prompts, paths.n_logits), "(M, D), prompts and edges, before (d,)")
            logit_map = FeatureMap(array)
        elif hidden is not None:
            array = as_real_array("hidden", hidden, 3)
            check_shape("hidden", array[..., 0], (n_prompts, len(prefixes)), "(M, P), prompts and prefixes, before (H,)")
            logit_map = PrefixHeadMap(array, vocabulary_size)
        super().__init__(logit_map, paths)


def grow(
    vocabulary_size: int, horizon: int, follow: Callable[[int, int], tuple[int, bool]], start: int, what: str
) -> tuple[list[Tokens], list[int], Finished]:
    """Grow a tree of responses, whose states move with the tokens.

    Parameters
    ----------
    vocabulary_size, horizon : int
    follow : callable
        ``follow(state, token)`` returns the state after a token, and whether a response ends with it.
    start : int
        The first state.
    what : str
        What makes the tree, for the message.

    Returns
    -------
    prefixes : list of tuple of int
        The inner prefixes, shortest first.
    states : list of int
        The state after each of them.
    finished : dict
        The edges and the last state of each response, by its tokens.

    Raises
    ------
    ValueError
        If there are more than 4,096 responses.
    """
    prefixes: list[Tokens] = [()]
    states, paths, finished = [start], [list[int]()], Finished()
    for number, prefix in enumerate(prefixes):  # the list grows while it is read
        for token in range(vocabulary_size):
            longer, edges = (*prefix, token), [*paths[number], number * vocabulary_size + token]
            state, ends = follow(states[number], token)
            if ends or len(longer) == horizon:
                finished[longer] = edges, state
            else:
                prefixes.append(longer)
                states.append(state)
                paths.append(edges)
        # Every prefix that is left makes one response at least.
        if len(finished) + len(prefixes) - number - 1 > MAXIMUM_RESPONSES:
            raise ValueError(f"{what} make more than {MAXIMUM_RESPONSES} responses, and no more are listed")
    return prefixes, states, finished


def _edge_table(finished: Finished, order: Iterable[Tokens]) -> Integers:
    """Return the edge that each token of the responses takes, in an order of these, shape (K, T): see `Paths`."""
    table = np.full((len(finished), max(map(len, finished))), -1, dtype=np.int64)
    for k, response in enumerate(order):
        table[k, : len(response)] = finished[response][0]
    return table


@typed
def edge_table(policy: Policy) -> pd.DataFrame:
    """Name the edges of a policy in a table: the logits at each prompt, in their order.

    Edge d is the logit of a token after a prefix, or in a state of a `TokenChain`. The arrays of shape (M, D) or (S, V) of the
    library have their entries in this order. Every edge has a parameter of its own if there are no features and no network. The
    parameters are then ``theta.reshape(M, D)``, one row per prompt; those of a chain are ``theta.reshape(S, V)``.

    Parameters
    ----------
    policy : Policy

    Returns
    -------
    DataFrame
        One row per edge. The columns are ``prefix`` (the tokens before it) and ``token``. For a chain they are ``state``,
        ``token``, ``next_state`` and ``ends`` (whether a response ends with the token, whatever its length).

    Raises
    ------
    TypeError
        If it is no policy.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> tree = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0)
    >>> gt.edge_table(tree)  # doctest: +NORMALIZE_WHITESPACE
         prefix  token
    edge
    0        ()      0
    1        ()      1
    2      (1,)      0
    3      (1,)      1
    """
    import pandas as pd  # slow to import, and not always wanted

    if isinstance(policy, TokenChain):
        states, tokens = (place.ravel() for place in np.indices(policy.transitions.shape))
        rows = {"state": states, "token": tokens, "next_state": policy.transitions.ravel(), "ends": policy.ends.ravel()}
    else:
        size, prefixes = policy.paths.vocabulary_size, {}
        # The tokens of each inner prefix by its number, read off the responses that pass through it.
        for taken, response in zip(policy.paths.edges, policy.paths.tokens, strict=True):
            for length, edge in enumerate(taken[: len(response)].tolist()):
                prefixes[edge // size] = response[:length]
        edges = np.arange(policy.n_logits)
        rows = {"prefix": [prefixes[prefix] for prefix in (edges // size).tolist()], "token": edges % size}
    return pd.DataFrame(rows).rename_axis("edge")


@typed
def response_table(policy: Policy) -> pd.DataFrame:
    """Name the responses of a policy in a table: their tokens and lengths, in the order of all arrays of shape (M, K).

    Parameters
    ----------
    policy : Policy
        Its responses must be listed: those of a `TokenChain` are not, see `Problem.listed`.

    Returns
    -------
    DataFrame
        One row per response: ``tokens``, ``length``, and ``edges``, the rows of `edge_table` that its tokens take.

    Raises
    ------
    TypeError
        If it is no policy.
    NotListedError
        If its responses are not listed.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> tree = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0)
    >>> gt.response_table(tree)  # doctest: +NORMALIZE_WHITESPACE
              tokens  length   edges
    response
    0           (0,)       1    (0,)
    1         (1, 0)       2  (1, 2)
    2         (1, 1)       2  (1, 3)
    """
    import pandas as pd  # slow to import, and not always wanted

    paths = policy.paths
    edges = [tuple(row[row >= 0].tolist()) for row in paths.edges]
    return pd.DataFrame({"tokens": paths.tokens, "length": paths.lengths, "edges": edges}).rename_axis("response")


def listed_chain(chain: TokenChain, rewards: StateRewards) -> tuple[Bandit, Policy]:
    """Return the bandit and the policy over listed responses that a chain and its rewards are; both have the chain's theta.

    Raises
    ------
    ValueError
        If there are more than 4,096 responses, or other ones for another prompt.
    """
    sizes, nexts, ends = (chain.vocabulary_size, chain.horizon), chain.transitions.tolist(), chain.ends.tolist()
    told = f"the tokens of {chain!r}"
    trees = [grow(*sizes, lambda s, v: (nexts[s][v], ends[s][v]), start, told) for start in chain.starts.tolist()]
    if any(list(finished) != list(trees[0][2]) for _, _, finished in trees):
        raise ValueError("starts must lead to the same responses for all prompts, if these are to be listed")
    # The edges of a prompt's tree are those of the chain at (M, D) places.
    places = np.arange(chain.n_logits).reshape(chain.transitions.shape)
    edges = np.stack([places[states].ravel() for _, states, _ in trees])
    law = np.stack([rewards.state_probabilities[[last for _, last in finished.values()]] for _, _, finished in trees])
    logit_map: SmoothMap
    if isinstance(chain.logit_map, StateNetworkMap):
        logit_map = StateNetworkMap(chain.logit_map.network, edges, listed=True)
    else:
        features = chain.logit_map.features
        logit_map = FeatureMap((np.eye(chain.n_logits) if features is None else features)[edges])
    paths = Paths(_edge_table(trees[0][2], trees[0][2]), chain.vocabulary_size)
    return Bandit.from_law(rewards.values, law, rewards.prompt_weights), Policy(logit_map, paths)
