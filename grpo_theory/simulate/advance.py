"""The compiled driver of training runs: words to iterates, many runs side by side.

A run is a lane: every loop of a stage ends in one over the n lanes that are wanted.  A rollout serves M updates, each on the
groups of B/M of its prompts.  What only some estimators need (score norms, penalties, ratios, records) is a function of its own,
compiled when it is first wanted.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
from numba import types

from grpo_theory.arrays import Array
from grpo_theory.compilation import F1, F3, compile_function, record_type
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.simulate import ascent, optimiser, penalty, record, sums, weighing
from grpo_theory.simulate.ascent import clear, follow, project
from grpo_theory.simulate.learner import fill_responses, fill_tokens
from grpo_theory.simulate.record import TRACE, keep_iterates
from grpo_theory.simulate.setting import RECIPE, ROOM, STATE, WORDS, WORLD
from grpo_theory.simulate.show import BATCH
from grpo_theory.simulate.sums import ROLLOUT, RULE, note_fault, sum_affine, sum_tabulated
from grpo_theory.simulate.tally import count_outcomes, fill_thresholds
from grpo_theory.simulate.update import add_weights, centre_covector, draw_prompts, fill_rewards, pool_covectors


class Parts(NamedTuple):
    """Functions that differ between policies, estimators and optimisers, and the arrays that policy and optimiser read."""

    fill_logits: Any
    take_step: Any
    array: Array
    move: Any
    settings: Array
    fill_penalties: Any
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
    types.FunctionType(penalty.FILL_PENALTIES),
    types.FunctionType(penalty.FILL_SEEN),
    types.FunctionType(sums.SIGNATURE),
    types.FunctionType(weighing.SIGNATURE),
    types.FunctionType(record.SIGNATURE),
    types.FunctionType(ratio.SIGNATURE),
    types.FunctionType(clip.SIGNATURE),
    types.FunctionType(kl_term.SIGNATURE),
)


def advance(parts, world, recipe, rule, words, steps, start, ball, batch, rollout, room, state, trace):
    """Advance R runs by the S rollouts of the words, each of which serves M updates.

    steps (S M,) are the step sizes and `start` is the number of updates before them; ball is the centre (d,) followed by the
    radius, or empty; the state is advanced in place, and the trace is filled.  A kernel's fault ends it, and is noted
    in the rollout.
    """
    batch_size, n = rollout.prompts.shape[0], state.theta.shape[1]
    scratch, groups = rollout.scratch, batch_size // recipe.updates
    for s in range(words.dithers.shape[0]):
        # The policy that samples, and its rollout.
        for b in range(batch_size):
            own = words.prompts[s, b]
            draw_prompts(own, words.first, world.prompt_threshold, world.prompt_choices, n, rollout.prompts[b])
        parts.fill_logits(state.theta, rollout.prompts, parts.array, room.rows, room.logits)
        drawn = words.responses[s, 2 * batch_size :]
        for b in range(batch_size):
            prompts, pi = rollout.prompts[b], room.pi[b]
            fill_tokens(room.logits[b], world.vocabulary_size, n, room.tokens[b], room.log_tokens[b], scratch)
            fill_responses(room.tokens[b], world.edges, world.lengths, n, pi)
            fill_thresholds(pi, world.laws, prompts, words.dithers[s], n, rollout.thresholds[b], scratch)
            group = drawn[b * recipe.group_size : (b + 1) * recipe.group_size]
            count_outcomes(group, words.first, rollout.thresholds[b], n, rollout.counts[b])
            if recipe.in_reward > 0.0:
                parts.fill_penalties(parts.fill_terms, world, recipe, b, n, rollout, room)
            if recipe.wants_rewards:
                fill_rewards(world.values, room.penalties[b], n, rollout.rewards[b])
            if recipe.sees_fields:
                parts.fill_seen(world, b, n, rollout, room)
            # Its advantages, where the kernel need not be called.
            if rule.advantages.shape[0] > 0:
                sum_tabulated(rollout.counts[b], rule.advantages, rule.ranks, n, rollout.sums[b, 0], scratch)
            elif rule.coefficients.shape[0] > 0:
                own_fields, own_sums = rollout.fields[b], rollout.sums[b, 0]
                sum_affine(rollout.counts[b], rollout.rewards[b], own_fields, rule.coefficients, n, own_sums, scratch)
        if rule.is_called:
            first, lengths = words.first, recipe.seen_lengths
            parts.fill_sums(rule, rollout, batch, drawn, first, n, world.responses, lengths, len(world.values))
            note_fault(room.logits, rollout.sums, batch.rewards, n, rollout.fault)
            if rollout.fault[0] > 0.0:
                return
        if trace.path.shape[0] > 0:
            parts.keep_rollout(start // recipe.updates + s, rollout, room.tokens, recipe.group_size, world.strength, trace)
        # The updates.
        for j in range(recipe.updates):
            first, update = j * groups, s * recipe.updates + j
            prompts = rollout.prompts[first : first + groups]
            if recipe.updates > 1:
                parts.fill_logits(state.theta, prompts, parts.array, room.rows, room.logits_now)
            for b in range(groups):
                here, covector = first + b, room.covectors[b]
                tokens, log_tokens = room.tokens[here], room.log_tokens[here]
                if recipe.updates > 1:
                    tokens, log_tokens = room.tokens_now, room.log_tokens_now
                    fill_tokens(room.logits_now[b], world.vocabulary_size, n, tokens, log_tokens, scratch)
                if recipe.weighs_anew:
                    ratios, weights, terms = parts.fill_ratios, parts.fill_weights, parts.fill_terms
                    parts.weigh_tokens(ratios, weights, terms, world, recipe, prompts[b], log_tokens, here, n, room)
                counts = rollout.counts[here]
                add_weights(rollout.sums[here], counts, world.edges, world.lengths, room.gains, room.drifts, n, covector)
                centre_covector(covector, tokens, world.vocabulary_size, n, scratch[0])
            used = rollout.counts[first : first + groups]
            pool_covectors(used, world.lengths, recipe.pool, recipe.group_size, n, room.covectors, scratch[0])
            share, step = 1.0 / (groups * recipe.group_size), steps[update]
            if state.moments.shape[0] == 0:
                parts.take_step(state.theta, prompts, parts.array, room.rows, room.covectors, step * share)
            else:
                clear(state.gradient)
                parts.take_step(state.gradient, prompts, parts.array, room.rows, room.covectors, share)
                parts.move(state.theta, state.gradient, state.moments, parts.settings, step, start + update + 1)
            project(state.theta, ball, scratch[0])
            follow(state.theta, start + update + 1.0, state.start, state.average, state.farthest, scratch[0])
            if trace.path.shape[0] > 0:
                keep_iterates(start + update + 1, state.theta, trace)


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel, policy and composition."""
    arguments = (PARTS, WORLD, RECIPE, RULE, WORDS, F1, numba.int64, F1, BATCH, ROLLOUT, ROOM, STATE, TRACE)
    return compile_function(advance, numba.void(*arguments))
