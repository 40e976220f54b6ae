"""Trees of responses: a softmax at every prefix, a chain's responses listed, and tables that name edges and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.chain import StateNetworkMap, TokenChain
from grpo_theory.problem.logits import FeatureMap, LogitMap, Paths, PrefixHeadMap, SmoothMap, TabularMap
from grpo_theory.problem.policy import Bandit, Policy, StateRewards
from grpo_theory.validation import Array, Integers, as_count, as_real_array, check_shape, typed

if TYPE_CHECKING:
    import pandas as pd


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
        logit_map = ListedNetworkMap(chain.logit_map.network, edges)
    else:
        features = chain.logit_map.features
        logit_map = FeatureMap((np.eye(chain.n_logits) if features is None else features)[edges])
    paths = Paths(_edge_table(trees[0][2], trees[0][2]), chain.vocabulary_size)
    return Bandit.from_law(rewards.values, law, rewards.prompt_weights), Policy(logit_map, paths)


class ListedNetworkMap(StateNetworkMap):
    """The logits of the edges of listed responses: those that a chain's network gives the edge's token in the edge's state."""

    def at(self, theta: Array) -> FeatureMap:  # type: ignore[override]  # these edges are not the same for all prompts
        """Return the derivatives of the logits at theta (d,)."""
        return FeatureMap(self.features(theta)[self.edges])
