"""What a response and an edge of a policy are called: tables beside the arrays that the library computes with."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.problem import NotListedError

TREE = gt.TokenTree(2, vocabulary_size=3, horizon=3, end_token=0)


def test_edges_are_pairs_of_prefix_and_token():
    table = gt.edge_table(TREE)
    assert table["prefix"].iloc[::3].tolist() == list(TREE.prefixes)
    assert table["token"].tolist() == [0, 1, 2] * len(TREE.prefixes)


def test_a_parameter_moves_the_responses_through_its_edge_and_no_prompt_but_its_own():
    """The score of an edge's own parameter is not 0 for exactly the responses that pass through the edge's prefix."""
    theta = np.random.default_rng(0).normal(size=TREE.dimension)
    scores = TREE.scores(theta).reshape(2, TREE.n_responses, 2, TREE.n_logits)
    edges, responses = gt.edge_table(TREE), gt.response_table(TREE)
    for edge, prefix in enumerate(edges["prefix"]):
        through = [tokens[: len(prefix)] == prefix and len(tokens) > len(prefix) for tokens in responses["tokens"]]
        assert (scores[0, :, 0, edge] != 0.0).tolist() == through
        assert not scores[0, :, 1, edge].any()


def test_responses_have_their_tokens_lengths_and_edges():
    table = gt.response_table(TREE)
    assert table["tokens"].tolist() == list(TREE.responses)
    assert table["length"].tolist() == [len(tokens) for tokens in TREE.responses]
    edges = gt.edge_table(TREE)
    for tokens, taken in zip(table["tokens"], table["edges"], strict=True):
        assert tuple(edges.loc[list(taken), "token"]) == tokens
        assert [edges.loc[edge, "prefix"] for edge in taken] == [tokens[:length] for length in range(len(tokens))]


def test_the_tables_tell_apart_trees_that_differ_in_their_end_token():
    """The control: the same sizes with another end token have other responses, and other prefixes."""
    other = gt.TokenTree(2, vocabulary_size=3, horizon=3, end_token=2)
    assert not gt.edge_table(TREE).equals(gt.edge_table(other))
    assert not gt.response_table(TREE).equals(gt.response_table(other))


def test_a_bandit_is_a_tree_of_one_token():
    policy = gt.TabularSoftmax(2, 3)
    assert gt.edge_table(policy).values.tolist() == [[(), 0], [(), 1], [(), 2]]
    assert gt.response_table(policy).values.tolist() == [[(0,), 1, (0,)], [(1,), 1, (1,)], [(2,), 1, (2,)]]


def test_edges_of_a_chain_are_pairs_of_state_and_token():
    chain = gt.TokenChain([[0, 1], [2, 0], [-1, -1]], horizon=5, end_token=0)
    table = gt.edge_table(chain)
    assert table[["state", "token"]].values.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert table["next_state"].tolist() == [0, 1, 2, 0, -1, -1]
    assert table["ends"].tolist() == chain.ends.ravel().tolist()
    with pytest.raises(NotListedError):
        gt.response_table(chain)


def test_a_chain_that_is_listed_has_names_too():
    chain = gt.TokenChain([[0, 1], [1, 0]], horizon=2)
    listed = gt.Problem(gt.StateRewards([0.0, 1.0]), chain, theta=np.zeros(4)).listed()
    assert gt.response_table(listed.policy)["tokens"].tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("table", [gt.edge_table, gt.response_table])
def test_what_is_no_policy_is_refused_by_name(table):
    with pytest.raises(TypeError, match=r"policy must be a Policy, such as gt\.TokenTree\(\.\.\.\) or problem\.policy, got"):
        table(gt.gallery.problem("two-arms"))
