"""Stage 3 of a training step, what only some estimators need: importance ratios, clips, and KL terms in the loss."""

import numba
from numba import types

from grpo_theory.compilation import F2, I1, function_value, stage
from grpo_theory.estimation import clip, kl_term, ratio
from grpo_theory.exact.weights import fill_gains
from grpo_theory.simulate.penalty import fill_log_ratios
from grpo_theory.simulate.setting import RECIPE, ROOM, WORLD

FUNCTIONS = (types.FunctionType(part.SIGNATURE) for part in (ratio, clip, kl_term))
SIGNATURE = numba.void(*FUNCTIONS, WORLD, RECIPE, I1, F2, numba.int64, numba.int64, ROOM)


@stage
def fill_drifts(slopes, edges, lengths, strength, shares, n, drifts):
    """Fill what a KL term in the loss adds to the weights of tokens (K, T, N), from its slopes on the edges (D, N)."""
    for k in range(edges.shape[0]):
        for t in range(lengths[k]):
            for i in range(n):
                drifts[k, t, i] = -strength * shares[k] * slopes[edges[k, t], i]


@stage
def fill_drift(log_now, log_then, n, log_ratios):
    """Fill the logs of pi/pi_0 (D, N) from those of pi and of pi_0."""
    for d in range(log_ratios.shape[0]):
        for i in range(n):
            log_ratios[d, i] = log_now[d, i] - log_then[d, i]


@function_value(SIGNATURE)
def weigh_as_before(fill_ratios, fill_weights, fill_terms, world, recipe, prompts, log_tokens, here, n, room):
    """Leave gains and drifts what they are: ratios are 1, and nothing is added in the loss."""


@function_value(SIGNATURE)
def weigh_anew(fill_ratios, fill_weights, fill_terms, world, recipe, prompts, log_tokens, here, n, room):
    """Fill gains and drifts of group number `here` of the rollout, now that the policy's log probabilities are these (D, n)."""
    if recipe.drifts_away:
        fill_drift(log_tokens, room.log_tokens[here], n, room.log_ratios)
        fill_gains(
            fill_ratios, fill_weights, room.log_ratios, world.edges, world.lengths, recipe.shares, recipe.widths, room.gains
        )
    if recipe.in_loss > 0.0:
        fill_log_ratios(log_tokens, world.log_reference, prompts, n, room.log_ratios)
        fill_terms(room.log_ratios, room.terms)
        fill_drifts(room.terms, world.edges, world.lengths, recipe.in_loss, recipe.shares, n, room.drifts)
