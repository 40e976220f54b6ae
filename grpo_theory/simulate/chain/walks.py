"""Responses of a chain, drawn token by token.

Every response has a stream of its own, keyed by the seed, the number of its replication or run, and its own number there.  So
what is drawn depends neither on who draws it nor on how long other responses are.  Estimators that are compared see the same
uniforms.  A stream is SFC64, bit for bit numpy's from the same state; its uniforms are multiples of 2^-53.  Tokens are drawn by
alias tables, so that each takes one uniform and no search.  Their probabilities are exact to V 2^-53.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import (
    F1,
    I1,
    READONLY_F1,
    READONLY_F2,
    READONLY_I1,
    READONLY_I2,
    function_value,
    record_type,
    stage,
)
from grpo_theory.problem import ChainPoint
from grpo_theory.simulate.draw.prompt_tables import fill_aliases
from grpo_theory.simulate.draw.streams import mix, turn, uniform
from grpo_theory.validation import Array, Integers

WORDS = numba.uint64[::1]
EDGES = numba.int32[:, ::1]


class Chances(NamedTuple):
    """What responses are drawn from.

    Prompts and rewards are drawn by the sums of their laws, see `sums_of`; tokens by the alias table of their state.

    Attributes
    ----------
    prompts : ndarray, shape (M,)
    starts : ndarray of int64, shape (M,)
        V times the state in which the response to each prompt begins.
    thresholds : ndarray, shape (D,)
        D = S V edges, the pairs of a state and a token.
    choices : ndarray of int64, shape (D, 2)
        The edge that is taken below the threshold, and the one from there on.
    leads : ndarray of int64, shape (D, 2)
        V times the state after each edge, and whether a response ends with it.
    rewards : ndarray, shape (S, L)
        By the state in which a response ends.
    values : ndarray, shape (L,)
        The reward values.
    """

    prompts: Array
    starts: Integers
    thresholds: Array
    choices: Integers
    leads: Integers
    rewards: Array
    values: Array


class Walks(NamedTuple):
    """Groups of responses that were drawn, one after another: n groups of G are N = n G responses.

    Attributes
    ----------
    prompts : ndarray of int64, shape (n,)
    edges : ndarray of int32, shape (N, T)
        The number s V + v of each token v in a state s; of no meaning beyond the response's end.
    lengths : ndarray of int64, shape (N,)
    rewards : ndarray, shape (N,)
    """

    prompts: Integers
    edges: NDArray[np.int32]
    lengths: Integers
    rewards: Array

    def groups(self, first: int, stop: int) -> "Walks":
        """Return the groups from one on to before another, as views."""
        size = self.lengths.size // self.prompts.size
        own = slice(first * size, stop * size)
        return Walks(self.prompts[first:stop], self.edges[own], self.lengths[own], self.rewards[own])


CHANCES = record_type(Chances, READONLY_F1, READONLY_I1, READONLY_F1, READONLY_I2, READONLY_I2, READONLY_F2, READONLY_F1)
WALKS = record_type(Walks, I1, EDGES, I1, F1)


def sums_of(law: Array) -> Array:
    """Return the sums of laws (..., n) up to each point, infinite from the last on that has a chance."""
    below = np.cumsum(law, axis=-1)
    after = np.flip(np.cumsum(np.flip(law, -1), axis=-1), -1)
    below[..., :-1][after[..., 1:] == 0.0] = np.inf
    below[..., -1] = np.inf
    return below


def chances_of(point: ChainPoint) -> Chances:
    """Return what the responses to a problem are drawn from at a point."""
    chain, rewards = point.chain, point.state_rewards
    n_tokens, nexts = chain.vocabulary_size, np.where(chain.transitions < 0, 0, chain.transitions)
    thresholds, choices = np.empty(chain.n_logits), np.empty((chain.n_logits, 2), dtype=np.int64)
    fill_aliases(point.state_probabilities, thresholds, choices)
    return Chances(
        prompts=sums_of(rewards.prompt_weights),
        starts=chain.starts * n_tokens,
        thresholds=thresholds,
        choices=choices,
        leads=np.stack([nexts.ravel() * n_tokens, chain.ends.ravel()], axis=1),
        rewards=sums_of(rewards.state_probabilities),
        values=rewards.values,
    )


def make_walks(n_groups: int, group_size: int, horizon: int) -> Walks:
    """Make room for so many groups."""
    n = n_groups * group_size
    edges = np.zeros((n, horizon), dtype=np.int32)
    return Walks(np.zeros(n_groups, dtype=np.int64), edges, np.ones(n, dtype=np.int64), np.zeros(n))


@stage
def first_above(sums, u):
    """Return the first place whose sum is above u; the last sum is infinite."""
    place = 0
    while sums[place] <= u:
        place += 1
    return place


@function_value(numba.void(WORDS, numba.int64, numba.int64, numba.int64, CHANCES, WALKS))
def draw_walks(words, number, first, batch, chances, walks):
    """Draw groups of responses, `batch` responses for each replication.

    Replications are numbered from `number` on, and the responses of each from `first` on.  `words` (3,) are a seed's.
    """
    n, horizon = walks.edges.shape
    group_size, n_tokens = n // walks.prompts.shape[0], chances.thresholds.shape[0] // chances.rewards.shape[0]
    scale, prompt = n_tokens / 9007199254740992.0, 0
    for i in range(n):
        own, replication = np.uint64(first + i % batch), np.uint64(number + i // batch)
        a, b, c, counter = mix(words[0], words[1] + own, words[2] + replication, np.uint64(1))
        if i % group_size == 0:
            word, a, b, c, counter = turn(a, b, c, counter)
            prompt = first_above(chances.prompts, uniform(word))
            walks.prompts[i // group_size] = prompt
        state, length = chances.starts[prompt], 0
        while length < horizon:
            word, a, b, c, counter = turn(a, b, c, counter)
            x = np.int64(word >> np.uint64(11)) * scale
            place = np.int64(x)
            edge = chances.choices[state + place, np.int64(x - place >= chances.thresholds[state + place])]
            walks.edges[i, length] = edge
            length += 1
            state = chances.leads[edge, 0]
            if chances.leads[edge, 1] != 0:
                break
        walks.lengths[i] = length
        word, a, b, c, counter = turn(a, b, c, counter)
        walks.rewards[i] = chances.values[first_above(chances.rewards[state // n_tokens], uniform(word))]


def compile_walks() -> Any:
    """Compile what draws, before the first thread starts."""
    return fill_aliases.dispatcher, draw_walks.dispatcher
