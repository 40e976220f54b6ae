"""A chain's responses listed as a tree, where they are few: what recursion says can then be enumerated."""

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.problem.bandit import Bandit
from grpo_theory.problem.chain import END, TokenChain
from grpo_theory.problem.logit_map import FeatureMap, SmoothMap
from grpo_theory.problem.paths import Paths
from grpo_theory.problem.policy import Policy
from grpo_theory.problem.state_network import StateNetworkMap
from grpo_theory.problem.state_rewards import StateRewards
from grpo_theory.problem.tree import MAXIMUM_RESPONSES


def listed_paths(chain: TokenChain, start: int) -> tuple[Integers, Integers, Integers]:
    """List the responses that begin in a state.

    Returns
    -------
    edges : ndarray of int64, shape (K, T)
        The edge of their tree that each token takes, see `Paths`.
    states : ndarray of int64, shape (P,)
        The state after each of the tree's P inner prefixes.
    last : ndarray of int64, shape (K,)
        The state in which each response ends.

    Raises
    ------
    ValueError
        If there are more than 4,096 responses.
    """
    states, paths = [start], [list[int]()]
    finished: list[tuple[list[int], int]] = []
    for number, state in enumerate(states):  # the list grows while it is read
        for token in range(chain.vocabulary_size):
            edges, after = [*paths[number], number * chain.vocabulary_size + token], int(chain.transitions[state, token])
            if chain.ends[state, token] or len(edges) == chain.horizon:
                finished.append((edges, after))
            else:
                states.append(after)
                paths.append(edges)
        if len(finished) + len(states) - number - 1 > MAXIMUM_RESPONSES:
            raise ValueError(f"{chain!r} has more than {MAXIMUM_RESPONSES} responses, and no more are listed")
    table = np.full((len(finished), max(len(edges) for edges, _ in finished)), END, dtype=np.int64)
    for k, (edges, _) in enumerate(finished):
        table[k, : len(edges)] = edges
    return table, np.array(states), np.array([last for _, last in finished])


def listed(chain: TokenChain, rewards: StateRewards) -> tuple[Bandit, Policy]:
    """Return the bandit and the policy over listed responses that a chain and its rewards are; both have the chain's theta.

    Raises
    ------
    ValueError
        If there are more than 4,096 responses, or other ones for another prompt.
    """
    tables, states, last = zip(*(listed_paths(chain, int(start)) for start in chain.starts), strict=True)
    if any(not np.array_equal(table, tables[0]) for table in tables):
        raise ValueError("starts must lead to the same responses for all prompts, if these are to be listed")
    places = np.arange(chain.n_logits).reshape(chain.transitions.shape)
    edges = np.stack([places[each].ravel() for each in states])
    law = np.stack([rewards.state_probabilities[each] for each in last])
    policy = Policy(_listed_map(chain, edges), Paths(tables[0], chain.vocabulary_size))
    return Bandit.from_law(rewards.values, law, rewards.prompt_weights), policy


def _listed_map(chain: TokenChain, edges: Integers) -> SmoothMap:
    """Return the map from the chain's parameters to the logits of trees, whose edges are those of the chain at (M, D) places."""
    if isinstance(chain.logit_map, StateNetworkMap):
        return ListedNetworkMap(chain.logit_map, edges)
    features = chain.logit_map.features
    return FeatureMap((np.eye(chain.n_logits) if features is None else features)[edges])


class ListedNetworkMap(SmoothMap):
    """The logits of the edges of listed responses: those that a chain's network gives the edge's token in the edge's state.

    Parameters
    ----------
    states : StateNetworkMap
    edges : ndarray of int64, shape (M, D)
        Which of the chain's logits each edge of a prompt's tree has.
    """

    def __init__(self, states: StateNetworkMap, edges: Integers) -> None:
        self.states, self.edges = states, edges
        self.n_prompts, self.n_logits = edges.shape
        self.dimension = states.dimension

    def logits(self, theta: Array) -> Array:
        """Return the logits, shape (..., M, D)."""
        return self.states.of_states(theta)[..., self.edges]

    def at(self, theta: Array) -> FeatureMap:
        """Return the derivatives of the logits at theta (d,)."""
        return FeatureMap(self.states.features(theta)[self.edges])

    def bend(self, theta: Array, slopes: Array) -> Array:
        """Return sum_md slope_md times the second derivative of logit (m, d), shape (d, d)."""
        by_state = np.zeros((1, self.states.n_logits))
        np.add.at(by_state[0], self.edges, slopes)
        return self.states.bend(theta, by_state)
