"""The compiled driver of training runs: uniforms to iterates, R runs side by side.

The groups of a step lie side by side in N = B R lanes; lane b R + r is group b of run r.  A rollout serves M updates, each on
B/M of its prompts: those lanes lie one after another.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
from numba import types

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F1, F2, F3, F4, I1, I2, compile_function, record_type
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.exact.weights import fill_gains
from grpo_theory.simulate import ascent
from grpo_theory.simulate.ascent import follow, project
from grpo_theory.simulate.covector import add_tokens, centre, pool_tokens
from grpo_theory.simulate.draw import draw_outcomes, draw_prompts
from grpo_theory.simulate.learner import (
    fill_drift,
    fill_drifts,
    fill_fields,
    fill_log_ratios,
    fill_norms,
    fill_penalties,
    fill_responses,
    fill_rewards,
    fill_thresholds,
    fill_tokens,
)
from grpo_theory.simulate.record import TRACE, keep_iterates, keep_rollouts
from grpo_theory.simulate.show import BATCH, fill_advantages, show_prompts, show_responses


class World(NamedTuple):
    """The problem as the driver sees it.

    Attributes
    ----------
    prompt_threshold, prompt_choices : ndarray, shapes (1, M) and (1, 2 M)
        The prompts' alias table.
    responses : ndarray of int64, shape (O,)
        The response of each outcome.
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    vocabulary_size : int
    values : ndarray, shape (L,)
        The reward values.
    laws : ndarray, shape (M, K, L)
        Probabilities of the values.
    mean_rewards, mean_squares : ndarray, shape (K, M)
        E[Z | m, k] and E[Z^2 | m, k].
    log_reference : ndarray, shape (D, M)
        Log probabilities of tokens given their prefixes under the penalty's reference.
    strength : float
        Of the penalty; 0 for none.
    gram : ndarray, shape (M, D, D)
        Phi Phi' of the policy, or of shape (0, 0, 0) where the kernel reads no score norm.
    """

    prompt_threshold: Array
    prompt_choices: Integers
    responses: Integers
    edges: Integers
    lengths: Integers
    vocabulary_size: int
    values: Array
    laws: Array
    mean_rewards: Array
    mean_squares: Array
    log_reference: Array
    strength: float
    gram: Array


class Recipe(NamedTuple):
    """The estimator as the driver sees it.

    Attributes
    ----------
    at_a_time : int
        How many groups the kernel is given at once.
    pools : int
        See `pool_tokens`.
    shares : ndarray, shape (K,)
        The weight of each token of a response.
    widths : ndarray, shape (2,)
        Of the clip.
    in_reward, in_loss : float
        The strength of the penalty where it stands, and 0 where it does not.
    updates : int
        How many updates a rollout serves.
    drifts_away : bool
        Whether importance ratios change between the updates.
    """

    at_a_time: int
    pools: int
    shares: Array
    widths: Array
    in_reward: float
    in_loss: float
    updates: int
    drifts_away: bool


class Room(NamedTuple):
    """What a step is computed in; N lanes of a rollout, n = N/M of an update.

    Where a rollout serves one update, the arrays of the update are those of the rollout, and need not be filled again.

    Attributes
    ----------
    prompts : ndarray of int64, shape (N,)
    logits, tokens, log_tokens, log_ratios, terms : ndarray, shape (D, N)
        Of the policy that samples; the last three are empty where nothing wants logs.
    pi, penalties, norms : ndarray, shape (K, N)
        norms is empty where the kernel reads none.
    thresholds : ndarray, shape (O - 1, N)
    rewards : ndarray, shape (O, N)
    fields : ndarray, shape (3, N)
        Empty where the kernel reads none of them.
    outcomes : ndarray of int64, shape (G, N)
    advantages : ndarray, shape (N, G)
    own, places : ndarray of int64, shape (N,)
        Each lane's number, and its place in the kernel's batch.
    seen_lengths : ndarray of int64, shape (K,)
        Empty where the kernel does not read lengths.
    logits_now, tokens_now, log_tokens_now, drifted, slopes, covectors : ndarray, shape (D, n)
        Of the policy that is updated.
    gains : ndarray, shape (K, 2, T, 1 or n)
    drifts : ndarray, shape (K, T, n), or (0, 0, 0)
    rows : ndarray of int64, shape (n,)
        Whose gains are a lane's.
    """

    prompts: Integers
    logits: Array
    tokens: Array
    log_tokens: Array
    log_ratios: Array
    terms: Array
    pi: Array
    penalties: Array
    norms: Array
    thresholds: Array
    rewards: Array
    fields: Array
    outcomes: Integers
    advantages: Array
    own: Integers
    places: Integers
    seen_lengths: Integers
    logits_now: Array
    tokens_now: Array
    log_tokens_now: Array
    drifted: Array
    slopes: Array
    covectors: Array
    gains: Array
    drifts: Array
    rows: Integers


class State(NamedTuple):
    """R runs on their way, advanced in place.

    Attributes
    ----------
    theta, average : ndarray, shape (R, d)
        The iterates, and their averages so far.
    start : ndarray, shape (R, d)
    farthest : ndarray, shape (R,)
        The largest squared distance of an iterate from the start.
    """

    theta: Array
    average: Array
    start: Array
    farthest: Array


class Parts(NamedTuple):
    """Functions that differ from policy to policy and from estimator to estimator, and the array that the policy's read."""

    kernel: Any
    fill_logits: Any
    take_step: Any
    array: Array
    fill_ratios: Any
    fill_weights: Any
    fill_terms: Any


WORLD = record_type(World, F2, I2, I1, I2, I1, numba.int64, F1, F3, F2, F2, F2, numba.float64, F3)
RECIPE = record_type(Recipe, numba.int64, numba.int64, F1, F1, numba.float64, numba.float64, numba.int64, numba.boolean)
ROOM = record_type(Room, I1, *[F2] * 11, I2, F2, I1, I1, I1, *[F2] * 6, F4, F3, I1)
STATE = record_type(State, F2, F2, F2, F1)
PARTS = record_type(
    Parts,
    KERNEL,
    types.FunctionType(ascent.FILL_LOGITS),
    types.FunctionType(ascent.TAKE_STEP),
    F3,
    types.FunctionType(ratio.SIGNATURE),
    types.FunctionType(clip.SIGNATURE),
    types.FunctionType(kl_term.SIGNATURE),
)


def advance(parts, world, recipe, uniforms, steps, start, ball, batch, room, state, trace):
    """Advance R runs by the rollouts of the uniforms (S, 1 + G, N), each of which serves M updates.

    steps (S M,) are the step sizes and `start` is the number of updates before them; ball is the centre (d,) followed by the
    radius, or empty; the state is advanced in place, and the trace is filled.
    """
    n = room.covectors.shape[1]
    scale = n // state.theta.shape[0] * room.outcomes.shape[0]
    for s in range(uniforms.shape[0]):
        # The policy that samples.
        draw_prompts(uniforms[s, 0], world.prompt_threshold, world.prompt_choices, room.prompts)
        parts.fill_logits(state.theta, room.prompts, parts.array, room.logits)
        fill_tokens(room.logits, world.vocabulary_size, room.tokens, room.log_tokens)
        fill_responses(room.tokens, world.edges, world.lengths, room.pi)
        if recipe.in_reward > 0.0:
            fill_log_ratios(room.log_tokens, world.log_reference, room.prompts, room.log_ratios)
            parts.fill_terms(room.log_ratios, room.terms)
            fill_penalties(room.terms, world.edges, world.lengths, recipe.in_reward, room.penalties)
        fill_norms(room.tokens, world.gram, world.edges, world.lengths, world.vocabulary_size, room.prompts, room.norms)
        # The rollout, and its advantages.
        fill_thresholds(room.pi, world.laws, room.prompts, room.thresholds)
        draw_outcomes(uniforms[s, 1:], room.thresholds, room.outcomes)
        fill_rewards(world.values, room.penalties, room.rewards)
        fill_fields(room.pi, room.penalties, room.norms, world.mean_rewards, world.mean_squares, room.prompts, room.fields)
        show_prompts(room.fields, room.own, room.places, batch.values, batch.standard_deviations, batch.optimal_baselines)
        show_responses(
            room.outcomes,
            room.own,
            room.places,
            world.responses,
            room.rewards,
            room.norms,
            room.seen_lengths,
            batch.rewards,
            batch.squared_score_norms,
            batch.lengths,
        )
        fill_advantages(parts.kernel, batch, recipe.at_a_time, room.advantages)
        keep_rollouts(
            start // recipe.updates + s,
            room.prompts,
            room.tokens,
            room.outcomes,
            batch.rewards,
            room.places,
            world.strength,
            trace,
        )
        # The updates.
        for j in range(recipe.updates):
            first, update = j * n, s * recipe.updates + j
            prompts = room.prompts[first : first + n]
            if recipe.updates > 1:
                parts.fill_logits(state.theta, prompts, parts.array, room.logits_now)
                fill_tokens(room.logits_now, world.vocabulary_size, room.tokens_now, room.log_tokens_now)
            if recipe.drifts_away:
                fill_drift(room.log_tokens_now, room.log_tokens, first, room.drifted)
                fill_gains(
                    parts.fill_ratios,
                    parts.fill_weights,
                    room.drifted,
                    world.edges,
                    world.lengths,
                    recipe.shares,
                    recipe.widths,
                    room.gains,
                )
            if recipe.in_loss > 0.0:
                fill_log_ratios(room.log_tokens_now, world.log_reference, prompts, room.drifted)
                parts.fill_terms(room.drifted, room.slopes)
                fill_drifts(room.slopes, world.edges, world.lengths, recipe.in_loss, recipe.shares, room.drifts)
            add_tokens(
                room.outcomes,
                first,
                room.places,
                room.advantages,
                world.responses,
                world.edges,
                world.lengths,
                room.gains,
                room.drifts,
                room.rows,
                room.covectors,
            )
            pool_tokens(room.outcomes, first, recipe.pools, world.responses, world.lengths, room.covectors)
            centre(room.covectors, room.tokens_now, world.vocabulary_size)
            parts.take_step(state.theta, prompts, parts.array, room.covectors, steps[update] / scale)
            project(state.theta, ball)
            follow(state.theta, start + update + 1.0, state.start, state.average, state.farthest)
            keep_iterates(start + update + 1, state.theta, trace)


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel, policy and composition."""
    return compile_function(advance, numba.void(PARTS, WORLD, RECIPE, F3, F1, numba.int64, F1, BATCH, ROOM, STATE, TRACE))
