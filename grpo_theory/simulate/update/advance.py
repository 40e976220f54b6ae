"""The compiled driver of training runs: words to iterates, many runs side by side.

A run is a lane.  A share of the runs makes many steps before the next one does, so that a step's numbers stay in the first
level of cache.  A rollout serves M updates, each on the groups of B/M of its prompts.  What only some estimators need (score
norms, ratios, records, the kernel itself) is a function of its own, compiled when it is first wanted.
"""

from functools import cache
from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F1, F3, NO_ARRAYS, compile_driver, paragraph, record_type
from grpo_theory.compiler.first_class import FirstClassType
from grpo_theory.compiler.lanes import WIDTH, load, store
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.simulate.advantage import penalty, sums
from grpo_theory.simulate.advantage.kernel_call import BATCH
from grpo_theory.simulate.advantage.sums import ROLLOUT, RULE, sum_tabulated
from grpo_theory.simulate.covector import edge_weights, ratios
from grpo_theory.simulate.covector.edge_weights import add_weights, centre_covector
from grpo_theory.simulate.draw.alias import choose_prompts
from grpo_theory.simulate.draw.generator import LANES, STREAMS, fill_words, next_uniform
from grpo_theory.simulate.draw.policy_counting import count_outcomes
from grpo_theory.simulate.draw.setting import RECIPE, ROOM, STATE, WORDS, WORLD
from grpo_theory.simulate.draw.softmax import fill_responses, fill_tokens
from grpo_theory.simulate.update import ascent, optimiser
from grpo_theory.simulate.update import trace as traces
from grpo_theory.simulate.update.ascent import clear, follow
from grpo_theory.simulate.update.trace import TRACE


class Parts(NamedTuple):
    """Functions that differ between policies, estimators and optimisers, and the arrays that policy and optimiser read.

    The first two are always there, any other only where it is called (see `wanted`).
    """

    fill_logits: Any
    take_step: Any
    array: Array
    move: Any
    settings: Array
    penalise: Any
    fill_rewards: Any
    fill_seen: Any
    sum_affine: Any
    fill_sums: Any
    weigh_tokens: Any
    fill_ratios: Any
    fill_weights: Any
    fill_terms: Any
    pool_covectors: Any
    project: Any
    follow_alone: Any
    keep_rollout: Any
    keep_iterates: Any


PARTS = record_type(
    Parts,
    FirstClassType(ascent.FILL_LOGITS),
    FirstClassType(ascent.TAKE_STEP),
    F3,
    FirstClassType(optimiser.MOVE),
    F1,
    FirstClassType(penalty.PENALISE),
    FirstClassType(edge_weights.FILL_REWARDS),
    FirstClassType(penalty.FILL_SEEN),
    FirstClassType(sums.SUM_AFFINE),
    FirstClassType(sums.SIGNATURE),
    FirstClassType(ratios.SIGNATURE),
    FirstClassType(ratio.SIGNATURE),
    FirstClassType(clip.SIGNATURE),
    FirstClassType(kl_term.SIGNATURE),
    FirstClassType(edge_weights.POOL_COVECTORS),
    FirstClassType(ascent.PROJECT),
    FirstClassType(ascent.FOLLOW),
    FirstClassType(traces.KEEP_ROLLOUT),
    FirstClassType(traces.KEEP_ITERATES),
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
        laws, facts, thresholds, counts = world.laws, room.facts, rollout.thresholds, rollout.counts
        drawn = words.responses
        count_outcomes(drawn, row, first, size, room.pi, b, i, n_values, laws, prompts, dither, facts, thresholds, counts)


@paragraph
def evaluate(parts, world, recipe, rule, b, n, rollout, room):
    """Fill what is made of the b-th groups' outcomes: rewards, what kernels see, and advantages if no kernel need be called."""
    prompts, penalties, counts = rollout.prompts, room.penalties, rollout.counts
    if recipe.in_reward > 0.0:
        terms, logs, reference, strength = parts.fill_terms, room.log_tokens, world.log_reference, recipe.in_reward
        edges, lengths, facts, ratios = world.edges, world.lengths, room.facts, room.log_ratios
        parts.penalise(terms, logs, prompts, b, n, reference, edges, lengths, strength, facts, ratios, room.terms, penalties)
    if recipe.wants_rewards:
        parts.fill_rewards(world.values, penalties, b, n, rollout.rewards)
    if recipe.sees_fields:
        parts.fill_seen(world, b, n, rollout, room)
    if rule.advantages.rows.shape[0] > 0:
        for i in range(0, n, WIDTH):
            sum_tabulated(counts, b, i, rule.advantages, rule.ranks, room.facts, rollout.sums)
    elif rule.coefficients.shape[0] > 0:
        parts.sum_affine(counts, world.values, penalties, b, n, rollout.fields, rule.coefficients, rollout.sums)


@paragraph
def show(parts, world, recipe, rule, words, s, first, n, batch, rollout, room):
    """Fill the sums of the advantages of the chunk's s-th rollout, by calling the kernel."""
    drawn = words.responses[2 * (s * words.rows + rollout.prompts.shape[0]) :]
    responses, lengths, n_values = world.responses, recipe.seen_lengths, len(world.values)
    parts.fill_sums(rule, rollout, batch, drawn, first, n, responses, lengths, n_values, room.logits)


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
def make_update(parts, world, recipe, j, count, step, ball, theta, s, n, rollout, room, state):
    """Make the j-th update of a rollout, the `count`-th of the runs of share s, from theta (d, N) on."""
    groups = rollout.prompts.shape[0] // recipe.updates
    first = j * groups
    prompts = rollout.prompts[first : first + groups]
    if recipe.updates > 1:
        parts.fill_logits(theta, prompts, parts.array, room.rows, room.logits_now)
    for b in range(groups):
        weigh(parts, world, recipe, first, b, n, rollout, room)
    if recipe.pool > 0:
        parts.pool_covectors(rollout.counts, first, n, world.lengths, recipe.pool, recipe.group_size, room.covectors)
    share = 1.0 / (groups * recipe.group_size)
    if state.moments.shape[1] == 0:
        parts.take_step(theta, prompts, parts.array, room.rows, room.covectors, step * share)
    else:
        clear(state.gradient)
        parts.take_step(state.gradient, prompts, parts.array, room.rows, room.covectors, share)
        parts.move(theta, state.gradient, state.moments[s], parts.settings, step, count)
    if ball.shape[0] > 0:
        parts.project(theta, ball, state.distances)
    if theta.shape[1] < WIDTH:
        parts.follow_alone(theta, s, count, state.start, state.average, state.farthest)
    else:
        follow(theta, s, count, state.start, state.average, state.farthest)


@paragraph
def fill_chunk(lanes, lone, rollouts, words):
    """Fill the words of so many rollouts of a chunk, from streams that stand at its beginning; they go on by whole eights."""
    fill_words(lanes, words.prompts[: (rollouts * words.rows + 7) // 8 * 8])
    for s in range(rollouts):
        words.dithers[s] = next_uniform(lone)


def advance(parts, world, recipe, rule, streams, words, steps, start, stop, ball, batch, rollout, room, state, trace):
    """Advance R runs from update number `start` to `stop`: block by block, chunk of rollouts by chunk, and share by share.

    Several blocks go from the first update to the last at once, because the words are those of the last block's last chunk.
    steps (n,) are the step sizes of all updates; ball is the centre (d,) followed by the radius, or empty.  The streams, the
    words and the state are advanced in place, and the trace is filled.  A kernel's fault ends it, and is noted in the rollout.
    """
    chunk, size, keeps = words.dithers.shape[0], state.theta.shape[2], trace.path.shape[0] > 0
    n_shares = LANES // size
    for block in range(streams.lone.shape[0] // 4):
        before, rows = start, slice(4 * block, 4 * block + 4)
        while before < stop:
            place = before // recipe.updates % chunk
            if place == 0:
                left = (steps.shape[0] - before) // recipe.updates
                fill_chunk(streams.lanes[rows], streams.lone[rows], min(chunk, left), words)
            rollouts = min(chunk - place, (stop - before) // recipe.updates)
            for share in range(block * n_shares, min((block + 1) * n_shares, state.theta.shape[0])):
                n, theta, run = min(size, state.wanted - share * size), state.theta[share], share * size
                for s in range(place, place + rollouts):
                    made = before + (s - place) * recipe.updates
                    draw(words, s, run % LANES, n, world, rollout, room)
                    parts.fill_logits(theta, rollout.prompts, parts.array, room.rows, room.logits)
                    for b in range(rollout.prompts.shape[0]):
                        sample(words, s, run % LANES, b, n, world, recipe, rollout, room)
                        evaluate(parts, world, recipe, rule, b, n, rollout, room)
                    if rule.is_called:
                        show(parts, world, recipe, rule, words, s, run % LANES, n, batch, rollout, room)
                        if rollout.fault[0] > 0.0:
                            return
                    if keeps:
                        number, group_size, strength = made // recipe.updates, recipe.group_size, world.strength
                        parts.keep_rollout(number, rollout, room.tokens, group_size, strength, trace, run, size)
                    for j in range(recipe.updates):
                        make_update(
                            parts, world, recipe, j, made + j + 1, steps[made + j], ball, theta, share, n, rollout, room, state
                        )
                        if keeps:
                            parts.keep_iterates(made + j + 1, theta, trace, run)
            before += rollouts * recipe.updates


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel, policy and composition."""
    count = numba.int64
    arguments = (PARTS, WORLD, RECIPE, RULE, STREAMS, WORDS, F1, count, count, F1, BATCH, ROLLOUT, ROOM, STATE, TRACE)
    return compile_driver(advance, numba.void(*arguments), **NO_ARRAYS)
