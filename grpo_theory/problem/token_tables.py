"""Tables that name the edges and the responses of a policy: which tokens a response has, which logit belongs to what."""

from typing import TYPE_CHECKING

import numpy as np

from grpo_theory.problem.chain import TokenChain
from grpo_theory.problem.policy import Policy
from grpo_theory.validation import shown

if TYPE_CHECKING:
    import pandas as pd


def edge_table(policy: Policy) -> "pd.DataFrame":
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

    _check_policy(policy)
    if isinstance(policy, TokenChain):
        states, tokens = (place.ravel() for place in np.indices(policy.transitions.shape))
        rows = {"state": states, "token": tokens, "next_state": policy.transitions.ravel(), "ends": policy.ends.ravel()}
    else:
        prefixes, size = _prefixes(policy), policy.paths.vocabulary_size
        edges = np.arange(policy.n_logits)
        rows = {"prefix": [prefixes[prefix] for prefix in (edges // size).tolist()], "token": edges % size}
    return pd.DataFrame(rows).rename_axis("edge")


def response_table(policy: Policy) -> "pd.DataFrame":
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

    _check_policy(policy)
    paths = policy.paths
    edges = [tuple(row[row >= 0].tolist()) for row in paths.edges]
    return pd.DataFrame({"tokens": paths.tokens, "length": paths.lengths, "edges": edges}).rename_axis("response")


def _check_policy(policy: Policy) -> None:
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy, such as gt.TokenTree(...) or problem.policy, got {shown(policy)}")


def _prefixes(policy: Policy) -> dict[int, tuple[int, ...]]:
    """Return the tokens of each inner prefix by its number, read off the responses that pass through it."""
    size, found = policy.paths.vocabulary_size, {}
    for edges, tokens in zip(policy.paths.edges, policy.paths.tokens, strict=True):
        for length, edge in enumerate(edges[: len(tokens)].tolist()):
            found[edge // size] = tokens[:length]
    return found
