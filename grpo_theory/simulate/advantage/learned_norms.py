"""Score norms of responses where features are learned, for kernels that read them."""

import numpy as np

from grpo_theory.compiler import FunctionValue, function_value, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store
from grpo_theory.problem import LogitMap, SmoothMap
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.simulate.advantage.rewards import FILL_SEEN, fill_fields, see_fields
from grpo_theory.simulate.draw.network_rows import layer_array, row_places
from grpo_theory.validation import Array


@stage
def unit_score(tokens, i, rows, second, width, paths, k, j):
    """Return sum_d W2_dj c_d, for the covector c of response k, with W2 in the rows and tokens (D, N) the probabilities."""
    size, total = paths.vocabulary_size, reals(0.0)
    for t in range(paths.lengths[k]):
        edge = paths.edges[k, t]
        start = edge // size * size
        own = load(rows, second + edge * width + j, i)
        for d in range(start, start + size):
            total = total + load(tokens, d, i) * (own - load(rows, second + d * width + j, i))
    return total


@stage
def covector_power(tokens, i, paths, k):
    """Return |c|^2 of response k: its tokens' covectors are at different prefixes, and orthogonal."""
    size, total = paths.vocabulary_size, reals(0.0)
    for t in range(paths.lengths[k]):
        edge = paths.edges[k, t]
        start, others = edge // size * size, reals(0.0)
        for d in range(start, start + size):
            if d != edge:
                p = load(tokens, d, i)
                total, others = total + p * p, others + p
        total = total + others * others
    return total


@stage
def fill_learned_norms(tables, tokens, rows, n_groups, b, i, norms):
    """Fill the squared score norms (K, N) of group b, with what the logits have left in the rows, and tokens (D, N)."""
    n_inputs, n_logits = tables.gram.shape[2], tokens.shape[0]
    width = (rows.shape[0] - n_groups * n_inputs) // (2 * n_groups + n_logits)
    units, slopes, second = row_places(n_groups, n_inputs, width)
    inputs, hidden, scale = reals(0.0), reals(0.0), tables.gram[1, 0, 0]
    for x in range(n_inputs):
        here = load(rows, b * n_inputs + x, i)
        inputs = inputs + here * here
    for j in range(width):
        h = scale * load(rows, units + b * width + j, i)
        hidden = hidden + h * h
    for k in range(norms.shape[0]):
        power = reals(0.0)
        for j in range(width):
            score = unit_score(tokens, i, rows, second, width, tables.paths, k, j) * load(rows, slopes + b * width + j, i)
            power = power + score * score
        store(hidden * covector_power(tokens, i, tables.paths, k) + inputs * power, norms, k, i)


@function_value(FILL_SEEN)
def see_learned_fields(tables, policy, prompts, n, room):
    """Do what `see_fields` does for a policy of two layers, whose features, slopes and W2 are in the room's rows.

    The gram of the tables is the policy's `layer_array`.  A score has the squared norm scale^2 |h|^2 |c|^2 + |x|^2 |S' c|^2, with
    S' c = act'(a) times scale W2' c for each unit.
    """
    n_groups = prompts.shape[0]
    for b in range(n_groups):
        for i in range(0, n, WIDTH):
            if room.seen.norms.shape[1] > 0:
                fill_learned_norms(tables, policy.tokens[b], room.rows, n_groups, b, i, room.seen.norms[b])
            if room.seen.fields.shape[1] > 0:
                fill_fields(policy.pi, tables.means, prompts, b, i, room)


def fields_function(logit_map: SmoothMap) -> FunctionValue:
    """Return what fills score norms and oracles' fields in training."""
    return see_learned_fields if isinstance(logit_map, TwoLayerMap) else see_fields


def norm_table(logit_map: SmoothMap) -> Array:
    """Return the array that this reads as `gram`."""
    if isinstance(logit_map, LogitMap):
        return np.array(logit_map.gram(), dtype=np.float64, order="C")
    assert isinstance(logit_map, TwoLayerMap)
    return layer_array(logit_map)
