"""Policies over sequences: a softmax over the vocabulary at every prefix."""

from math import log10

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.logit_map import FeatureMap, LogitMap, TabularMap
from grpo_theory.problem.paths import Paths
from grpo_theory.problem.policy import Policy
from grpo_theory.problem.prefix_head import PrefixHeadMap
from grpo_theory.validation import as_count, as_real_array, check_shape

MAXIMUM_RESPONSES = 4096
"""Trees with more responses are refused, because every exact sum runs over all of them."""

ALL_TERMS = 60
"""Later terms of a geometric series with a ratio of a half or less are below rounding."""


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
        logarithm = log_responses(vocabulary_size, horizon, end_token is not None)
        if logarithm > log10(MAXIMUM_RESPONSES + 0.5):
            shown = f"{10.0**logarithm:.0f}" if logarithm < 9.0 else f"about 1e{int(logarithm)}"
            raise ValueError(
                f"vocabulary_size {vocabulary_size} and horizon {horizon} make {shown} responses, and at most "
                f"{MAXIMUM_RESPONSES} can be enumerated"
            )
        if horizon > MAXIMUM_RESPONSES:
            raise ValueError(f"horizon must be at most {MAXIMUM_RESPONSES}, the tokens of the one response, got {horizon}")
        self.prefixes, paths = _grow(vocabulary_size, horizon, end_token)
        self.end_token = end_token
        super().__init__(_logit_map(n_prompts, paths, features, hidden), paths)

    @property
    def responses(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of the K responses."""
        return self.paths.tokens


def _logit_map(n_prompts: int, paths: Paths, features: ArrayLike | None, hidden: ArrayLike | None) -> LogitMap:
    if features is not None and hidden is not None:
        raise ValueError("features and hidden must not both be given: hidden states take the place of features")
    if features is not None:
        array = as_real_array("features", features, 3)
        check_shape("features", array[..., 0], (n_prompts, paths.n_logits), "(M, D), prompts and edges, before (d,)")
        return FeatureMap(array)
    if hidden is not None:
        array, n_prefixes = as_real_array("hidden", hidden, 3), paths.n_logits // paths.vocabulary_size
        check_shape("hidden", array[..., 0], (n_prompts, n_prefixes), "(M, P), prompts and prefixes, before (H,)")
        return PrefixHeadMap(array, paths.vocabulary_size)
    return TabularMap(n_prompts, paths.n_logits)


def log_responses(vocabulary_size: int, horizon: int, ends: bool) -> float:
    """Return the decimal logarithm of the number of responses, V^T, or sum_{t<=T} (V-1)^t with an end token.

    The number itself may have more digits than there is memory.
    """
    going_on = vocabulary_size - 1 if ends else vocabulary_size
    if going_on <= 1:
        return log10(horizon + 1) if ends and going_on == 1 else 0.0
    if not ends:
        return horizon * log10(going_on)
    few = min(horizon, ALL_TERMS)
    return log10(sum(going_on**-t for t in range(few + 1))) + horizon * log10(going_on)


def _grow(vocabulary_size: int, horizon: int, end_token: int | None) -> tuple[tuple[tuple[int, ...], ...], Paths]:
    """List the inner prefixes, shortest first, and the paths of the responses."""
    prefixes: list[tuple[int, ...]] = [()]
    paths: dict[tuple[int, ...], list[int]] = {(): []}
    finished: dict[tuple[int, ...], list[int]] = {}
    for number, prefix in enumerate(prefixes):  # the list grows while it is read
        for token in range(vocabulary_size):
            longer, edges = (*prefix, token), [*paths[prefix], number * vocabulary_size + token]
            if token == end_token or len(longer) == horizon:
                finished[longer] = edges
            else:
                prefixes.append(longer)
                paths[longer] = edges
    table = np.full((len(finished), max(map(len, finished))), -1, dtype=np.int64)
    for k, response in enumerate(sorted(finished)):
        table[k, : len(response)] = finished[response]
    return tuple(prefixes), Paths(table, vocabulary_size)
