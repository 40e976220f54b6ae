"""Stage 3 of a training step, what only some estimators need: importance ratios, clips, and KL terms in the loss."""

import numba

from grpo_theory.compiler.compilation import F3, I2, stage
from grpo_theory.compiler.first_class import FirstClassType, function_value
from grpo_theory.compiler.lanes import WIDTH, load, store
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.exact.weights import fill_gains
from grpo_theory.simulate.advantage.penalty import fill_log_ratios
from grpo_theory.simulate.draw.setting import RECIPE, ROOM, WORLD

FUNCTIONS = (FirstClassType(part.SIGNATURE) for part in (ratio, clip, kl_term))
SIGNATURE = numba.void(*FUNCTIONS, WORLD, RECIPE, I2, numba.int64, F3, numba.int64, numba.int64, ROOM)


@stage
def fill_drifts(slopes, i, edges, lengths, strength, shares, drifts):
    """Fill what a KL term in the loss adds to the weights of tokens (K, T, N), from its slopes on the edges (D, N)."""
    for k in range(edges.shape[0]):
        for t in range(lengths[k]):
            store(-strength * shares[k] * load(slopes, edges[k, t], i), drifts, k, t, i)


@stage
def fill_drift(log_now, b, log_then, here, i, log_ratios):
    """Fill the logs of pi/pi_0 (D, N) from those of pi at b and of pi_0 at `here`, (B, D, N)."""
    for d in range(log_ratios.shape[0]):
        store(load(log_now, b, d, i) - load(log_then, here, d, i), log_ratios, d, i)


@function_value(SIGNATURE)
def weigh_anew(fill_ratios, fill_weights, fill_terms, world, recipe, prompts, here, log_tokens, b, n, room):
    """Fill gains and drifts of group `here` of the rollout, now that the policy's log probabilities are log_tokens[b] (D, N)."""
    if recipe.drifts_away:
        for i in range(0, n, WIDTH):
            fill_drift(log_tokens, b, room.log_tokens, here, i, room.log_ratios)
        fill_gains(
            fill_ratios, fill_weights, room.log_ratios, world.edges, world.lengths, recipe.shares, recipe.widths, room.gains
        )
    if recipe.in_loss > 0.0:
        for i in range(0, n, WIDTH):
            fill_log_ratios(log_tokens, b, i, world.log_reference, prompts, here, room.facts, room.log_ratios)
        fill_terms(room.log_ratios, room.terms)
        for i in range(0, n, WIDTH):
            fill_drifts(room.terms, i, world.edges, world.lengths, recipe.in_loss, recipe.shares, room.drifts)
