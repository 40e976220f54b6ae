"""What a response and an edge of a policy are called: tables beside the arrays that the library computes with."""

import pytest

import grpo_theory as gt
from grpo_theory.problem import NotListedError

TREE = gt.TokenTree(2, vocabulary_size=3, horizon=3, end_token=0)


def test_edges_are_pairs_of_prefix_and_token():
    table = gt.edge_table(TREE)
    assert table["prefix"].iloc[::3].tolist() == list(TREE.prefixes)
    assert table["token"].tolist() == [0, 1, 2] * len(TREE.prefixes)


def test_responses_have_their_tokens_lengths_and_edges():
    table = gt.response_table(TREE)
    assert table["tokens"].tolist() == list(TREE.responses)
    assert table["length"].tolist() == [len(tokens) for tokens in TREE.responses]
    edges = gt.edge_table(TREE)
    for tokens, taken in zip(table["tokens"], table["edges"], strict=True):
        assert tuple(edges.loc[list(taken), "token"]) == tokens
        assert [edges.loc[edge, "prefix"] for edge in taken] == [tokens[:length] for length in range(len(tokens))]


def test_edges_of_a_chain_are_pairs_of_state_and_token():
    chain = gt.TokenChain([[0, 1], [2, 0], [-1, -1]], horizon=5, end_token=0)
    table = gt.edge_table(chain)
    assert table[["state", "token"]].values.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert table["next_state"].tolist() == [0, 1, 2, 0, -1, -1]
    assert table["ends"].tolist() == chain.ends.ravel().tolist()
    with pytest.raises(NotListedError):
        gt.response_table(chain)
