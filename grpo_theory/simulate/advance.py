"""The compiled driver of training runs: words to iterates, many runs side by side.

A run is a lane.  A share of the runs makes many steps before the next one does, so that a step's numbers stay in the first
level of cache.  A rollout serves M updates, each on the groups of B/M of its prompts.  What only some estimators need (score
norms, ratios, records, the kernel itself) is a function of its own, compiled when it is first wanted.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
from numba import types

from grpo_theory.arrays import Array
from grpo_theory.compilation import F1, F3, NO_ARRAYS, compile_function, paragraph, record_type
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.lanes import WIDTH, load, store
from grpo_theory.simulate import ascent, optimiser, penalty, record, sums, weighing
from grpo_theory.simulate.ascent import clear, follow, follow_alone, project
from grpo_theory.simulate.draw import choose_prompts
from grpo_theory.simulate.generator import LANES, STREAMS, fill_words, next_uniform
from grpo_theory.simulate.learner import fill_responses, fill_tokens
from grpo_theory.simulate.penalty import penalise
from grpo_theory.simulate.record import TRACE, keep_iterates, part_of
from grpo_theory.simulate.setting import RECIPE, ROOM, STATE, WORDS, WORLD
from grpo_theory.simulate.show import BATCH
from grpo_theory.simulate.sums import ROLLOUT, RULE, note_fault, sum_affine, sum_tabulated
from grpo_theory.simulate.tally import count_outcomes
from grpo_theory.simulate.update import add_weights, centre_covector, fill_rewards, pool_covectors


class Parts(NamedTuple):
    """Functions that differ between policies, estimators and optimisers, and the arrays that policy and optimiser read."""

    fill_logits: Any
    take_step: Any
    array: Array
    move: Any
    settings: Array
    fill_seen: Any
    fill_sums: Any
    weigh_tokens: Any
    keep_rollout: Any
    fill_ratios: Any
    fill_weights: Any
    fill_terms: Any


PARTS = record_type(
    Parts,
    types.FunctionType(ascent.FILL_LOGITS),
    types.FunctionType(ascent.TAKE_STEP),
    F3,
    types.FunctionType(optimiser.MOVE),
    F1,
    types.FunctionType(penalty.FILL_SEEN),
    types.FunctionType(sums.SIGNATURE),
    types.FunctionType(weighing.SIGNATURE),
    types.FunctionType(record.SIGNATURE),
    types.FunctionType(ratio.SIGNATURE),
    types.FunctionType(clip.SIGNATURE),
    types.FunctionType(kl_term.SIGNATURE),
)


@paragraph
def draw(words, s, first, n, world, rollout, room):
    """Draw the prompts of the chunk's s-th rollout, for the n runs from the first on."""
    for b in range(rollout.prompts.shape[0]):
        for i in range(0, n, WIDTH):
            drawn = load(words.prompts, s * words.rows + b, first + i)
            store(choose_prompts(drawn, world.prompts, room.choice), rollout.prompts, b, i)


@paragraph
def sample(words, s, first, b, n, world, recipe, rollout, room):
    """Fill the probabilities of the b-th prompts of the chunk's s-th rollout, and draw and count their outcomes."""
    size = recipe.group_size
    row = 2 * (s * words.rows + rollout.prompts.shape[0]) + b * size
    for i in range(0, n, WIDTH):
        fill_tokens(room.logits, b, i, world.vocabulary_size, room.tokens, room.log_tokens)
        fill_responses(room.tokens, b, i, world.edges, world.lengths, room.pi)
        prompts, dither, n_values = rollout.prompts, words.dithers[s], len(world.values)
        laws, thresholds, counts = world.laws, rollout.thresholds, rollout.counts
        count_outcomes(words.responses, row, first, size, room.pi, b, i, n_values, laws, prompts, dither, thresholds, counts)


@paragraph
def evaluate(parts, world, recipe, rule, b, n, rollout, room):
    """Fill what is made of the b-th groups' outcomes: rewards, what kernels see, and advantages if no kernel need be called."""
    if recipe.in_reward > 0.0:
        penalise(parts.fill_terms, world, recipe, b, n, rollout, room)
    if recipe.wants_rewards:
        for i in range(0, n, WIDTH):
            fill_rewards(world.values, room.penalties, b, i, rollout.rewards)
    if recipe.sees_fields:
        parts.fill_seen(world, b, n, rollout, room)
    if rule.advantages.shape[0] > 0:
        for i in range(0, n, WIDTH):
            sum_tabulated(rollout.counts, b, i, rule.advantages, rule.ranks, rollout.sums)
    elif rule.coefficients.shape[0] > 0:
        for i in range(0, n, WIDTH):
            sum_affine(rollout.counts, world.values, room.penalties, b, i, rollout.fields, rule.coefficients, rollout.sums)


@paragraph
def weigh(parts, world, recipe, first, b, n, rollout, room):
    """Fill the covectors of the b-th groups of an update, which are the rollout's from number `first` on."""
    here = first + b
    tokens, log_tokens, place = room.tokens, room.log_tokens, here
    if recipe.updates > 1:
        tokens, log_tokens, place = room.tokens_now, room.log_tokens_now, b
        for i in range(0, n, WIDTH):
            fill_tokens(room.logits_now, b, i, world.vocabulary_size, tokens, log_tokens)
    if recipe.weighs_anew:
        ratios, weights, terms = parts.fill_ratios, parts.fill_weights, parts.fill_terms
        parts.weigh_tokens(ratios, weights, terms, world, recipe, rollout.prompts, here, log_tokens, place, n, room)
    for i in range(0, n, WIDTH):
        gains, drifts = room.gains, room.drifts
        add_weights(rollout.sums, rollout.counts, here, i, world.edges, world.lengths, gains, drifts, room.covectors, b)
        centre_covector(room.covectors, b, tokens, place, i, world.vocabulary_size)


@paragraph
def update(parts, world, recipe, j, count, step, ball, theta, s, n, rollout, room, state):
    """Make the j-th update of a rollout, the `count`-th of the runs of share s, from theta (d, N) on."""
    groups = rollout.prompts.shape[0] // recipe.updates
    first = j * groups
    prompts = rollout.prompts[first : first + groups]
    if recipe.updates > 1:
        parts.fill_logits(theta, prompts, parts.array, room.rows, room.logits_now)
    for b in range(groups):
        weigh(parts, world, recipe, first, b, n, rollout, room)
    for i in range(0, n, WIDTH):
        pool_covectors(rollout.counts, first, i, world.lengths, recipe.pool, recipe.group_size, room.covectors)
    share = 1.0 / (groups * recipe.group_size)
    if state.moments.shape[1] == 0:
        parts.take_step(theta, prompts, parts.array, room.rows, room.covectors, step * share)
    else:
        clear(state.gradient)
        parts.take_step(state.gradient, prompts, parts.array, room.rows, room.covectors, share)
        parts.move(theta, state.gradient, state.moments[s], parts.settings, step, count)
    project(theta, ball, state.distances)
    if theta.shape[1] < WIDTH:
        follow_alone(theta, s, count, state.start, state.average, state.farthest)
    else:
        follow(theta, s, count, state.start, state.average, state.farthest)


@paragraph
def go_on(parts, world, recipe, rule, words, rollouts, steps, start, ball, batch, rollout, room, state, trace, share):
    """Advance the runs of a share by so many rollouts of the chunk, which serve the updates after `start`."""
    batch_size, size = rollout.prompts.shape[0], state.theta.shape[2]
    n, theta, kept = min(size, state.wanted - share * size), state.theta[share], part_of(trace, share * size, size)
    first = share * size % LANES  # the column where the words of the share's runs begin
    place = start // recipe.updates % words.dithers.shape[0]
    for s in range(place, place + rollouts):
        draw(words, s, first, n, world, rollout, room)
        parts.fill_logits(theta, rollout.prompts, parts.array, room.rows, room.logits)
        for b in range(batch_size):
            sample(words, s, first, b, n, world, recipe, rollout, room)
            evaluate(parts, world, recipe, rule, b, n, rollout, room)
        if rule.is_called:
            drawn, lengths = words.responses[2 * (s * words.rows + batch_size) :], recipe.seen_lengths
            parts.fill_sums(rule, rollout, batch, drawn, first, n, world.responses, lengths, len(world.values))
            note_fault(room.logits, rollout.sums, batch.rewards, n, rollout.fault)
            if rollout.fault[0] > 0.0:
                return
        made = start + (s - place) * recipe.updates
        if kept.path.shape[0] > 0:
            parts.keep_rollout(made // recipe.updates, rollout, room.tokens, recipe.group_size, world.strength, kept)
        for j in range(recipe.updates):
            update(parts, world, recipe, j, made + j + 1, steps[made + j], ball, theta, share, n, rollout, room, state)
            if kept.path.shape[0] > 0:
                keep_iterates(made + j + 1, theta, kept)


@paragraph
def fill_chunk(lanes, lone, rollouts, words):
    """Fill the words of so many rollouts of a chunk, from streams that stand at its beginning."""
    fill_words(lanes, words.prompts[: (rollouts * words.rows + 7) // 8 * 8])
    for s in range(rollouts):
        words.dithers[s] = next_uniform(lone)


def advance(parts, world, recipe, rule, streams, words, steps, start, stop, ball, batch, rollout, room, state, trace):
    """Advance R runs from update number `start` to `stop`: block by block, chunk of rollouts by chunk, and share by share.

    Several blocks go from the first update to the last at once, because the words are those of the last block's last chunk.
    steps (n,) are the step sizes of all updates; ball is the centre (d,) followed by the radius, or empty.  The streams, the
    words and the state are advanced in place, and the trace is filled.  A kernel's fault ends it, and is noted in the rollout.
    """
    chunk, n_shares = words.dithers.shape[0], LANES // state.theta.shape[2]
    for block in range(streams.lone.shape[0] // 4):
        made, rows = start, slice(4 * block, 4 * block + 4)
        while made < stop:
            place = made // recipe.updates % chunk
            if place == 0:
                left = (steps.shape[0] - made) // recipe.updates
                fill_chunk(streams.lanes[rows], streams.lone[rows], min(chunk, left), words)
            rollouts = min(chunk - place, (stop - made) // recipe.updates)
            for share in range(block * n_shares, min((block + 1) * n_shares, state.theta.shape[0])):
                go_on(parts, world, recipe, rule, words, rollouts, steps, made, ball, batch, rollout, room, state, trace, share)
                if rollout.fault[0] > 0.0:
                    return
            made += rollouts * recipe.updates


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel, policy and composition."""
    count = numba.int64
    arguments = (PARTS, WORLD, RECIPE, RULE, STREAMS, WORDS, F1, count, count, F1, BATCH, ROLLOUT, ROOM, STATE, TRACE)
    return compile_function(advance, numba.void(*arguments), **NO_ARRAYS)
