"""What the training driver is given and computes in, as records of arrays.

A run is a lane: arrays are (B, rows, N), B prompts of a rollout and N lanes, of which the first n are wanted.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F1, F2, F3, F4, I1, I2, record_type
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup


class World(NamedTuple):
    """The problem as the driver sees it.

    Attributes
    ----------
    prompts : Lookup
        The prompts' alias table (M, 2), see `alias_rows`.
    responses : ndarray of int64, shape (O,)
        The response of each outcome.
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    vocabulary_size : int
    values : ndarray, shape (L,)
        The reward values.
    laws : Lookup
        The distribution functions (M, K (L - 1)) of the values given prompt and response, but for their last values, those of a
        response one after another.
    rewards : Lookup
        E[Z | m, k], and then E[Z^2 | m, k], (M, 2 K).
    log_reference : Lookup
        Log probabilities (M, D) of tokens given their prefixes under the penalty's reference.
    strength : float
        Of the penalty; 0 for none.
    gram : ndarray, shape (M, D, D)
        Phi Phi' of the policy, or of shape (0, 0, 0) where the kernel reads no score norm.
    """

    prompts: Lookup
    responses: Integers
    edges: Integers
    lengths: Integers
    vocabulary_size: int
    values: Array
    laws: Lookup
    rewards: Lookup
    log_reference: Lookup
    strength: float
    gram: Array


class Recipe(NamedTuple):
    """The estimator as the driver sees it.

    Attributes
    ----------
    group_size : int
    pool : int
        How many groups pool their tokens; 0 for no pooling.
    shares : ndarray, shape (K,)
        The weight of each token of a response.
    seen_lengths : ndarray of int64, shape (K,)
        The responses' lengths; empty if the kernel does not read them.
    widths : ndarray, shape (2,)
        Of the clip.
    in_reward, in_loss : float
        The strength of the penalty where it stands, and 0 where it does not.
    updates : int
        How many updates a rollout serves.
    drifts_away : bool
        Whether importance ratios change between the updates.
    wants_rewards : bool
        Whether the rewards of the outcomes are needed.
    sees_fields : bool
        Whether the kernel reads score norms or what oracles know.
    weighs_anew : bool
        Whether the weights of tokens change from update to update.
    """

    group_size: int
    pool: int
    shares: Array
    seen_lengths: Integers
    widths: Array
    in_reward: float
    in_loss: float
    updates: int
    drifts_away: bool
    wants_rewards: bool
    sees_fields: bool
    weighs_anew: bool


class Room(NamedTuple):
    """What a step is computed in besides its `Rollout`.

    Attributes
    ----------
    logits, tokens, log_tokens : ndarray, shape (B, D, N)
        Of the policy that samples; the last is (B, 0, N) where nothing wants logs.
    pi, penalties : ndarray, shape (B, K, N)
        pi is tokens where responses have one token.
    log_ratios, terms : ndarray, shape (D, N)
    covectors : ndarray, shape (B/M, D, N)
    logits_now, tokens_now, log_tokens_now : ndarray, shape (B/M, D, N)
        Of the policy that is updated, where a rollout serves several updates.
    gains : ndarray, shape (K, 2, T, 1 or N)
    drifts : ndarray, shape (K, T, N), or (0, 0, 0)
    rows : ndarray, shape (rows, N)
        For the logits and the step of the policy.
    choice : ndarray, shape (2, WIDTH)
        For the choice of prompts.
    facts : ndarray, shape (rows, WIDTH)
        For a row of the world's tables at each lane's prompt.
    """

    logits: Array
    tokens: Array
    log_tokens: Array
    pi: Array
    penalties: Array
    log_ratios: Array
    terms: Array
    covectors: Array
    logits_now: Array
    tokens_now: Array
    log_tokens_now: Array
    gains: Array
    drifts: Array
    rows: Array
    choice: Array
    facts: Array


class State(NamedTuple):
    """The runs of some blocks on their way, advanced in place: in shares of N runs each, the last of which may not all be wanted.

    Attributes
    ----------
    wanted : int
        The number of runs R.
    theta, average, start : ndarray, shape (shares, d, N)
        The iterates, their averages so far, and where they began.
    farthest : ndarray, shape (shares, N)
        The largest squared distance of an iterate from the start.
    moments : ndarray, shape (shares, P, d, N), or (shares, 0, 0, 0)
        What the optimiser remembers.
    gradient : ndarray, shape (d, N), or (0, 0)
        Room for an estimate, where the optimiser needs it.
    distances : ndarray, shape (N,)
        Room for a distance.
    """

    wanted: int
    theta: Array
    average: Array
    start: Array
    farthest: Array
    moments: Array
    gradient: Array
    distances: Array


class Words(NamedTuple):
    """The random words of a chunk of C rollouts, P rows of 128 words each, and more rows, as lanes may reach beyond the last.

    Attributes
    ----------
    rows : int
        P.
    prompts : ndarray of uint64, shape (at least C P + 1, 128)
        The first B rows of a rollout are for the prompts.
    responses : ndarray of int32, shape (at least 2 (C P + 1), 128)
        The same words in halves; of a rollout's, those from row 2 B on are for the responses, group by group.
    dithers : ndarray, shape (C,)
    """

    rows: int
    prompts: NDArray[np.uint64]
    responses: NDArray[np.int32]
    dithers: Array


WORLD = record_type(World, LOOKUP, I1, I2, I1, numba.int64, F1, LOOKUP, LOOKUP, LOOKUP, numba.float64, F3)
RECIPE = record_type(
    Recipe,
    numba.int64,
    numba.int64,
    F1,
    I1,
    F1,
    numba.float64,
    numba.float64,
    numba.int64,
    numba.boolean,
    numba.boolean,
    numba.boolean,
    numba.boolean,
)
ROOM = record_type(Room, *[F3] * 5, F2, F2, *[F3] * 4, F4, F3, F2, F2, F2)
STATE = record_type(State, numba.int64, F3, F3, F3, F2, F4, F2, F1)
WORDS = record_type(Words, numba.int64, numba.uint64[:, ::1], numba.int32[:, ::1], F1)
