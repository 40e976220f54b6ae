"""Stage 4, the step: from theta to the logits of prompts, and along covectors, one pair of functions for each kind of logit map.

Theta is (d, n), one column for each run: a multiple of `WIDTH`, or one alone.  Prompts are (B, N), logits and covectors
(B, D, N), the first n of whose N lanes are those of the runs.
"""

import numpy as np

from grpo_theory.compiler import function_value
from grpo_theory.compiler.lanes import PICKED, WIDTH, load, pick, reals, spread, store, sum_lanes, turned, whole_rows
from grpo_theory.problem import LogitMap, Policy
from grpo_theory.problem.logits import HeadMap, TabularMap
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.simulate.covector.features import features
from grpo_theory.simulate.draw.network_rows import layer_array, layer_rows
from grpo_theory.simulate.draw.prompt_tables import add_to_blocks, read_blocks
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.simulate.update.step_types import FILL_LOGITS, TAKE_STEP, Ascent
from grpo_theory.simulate.update.two_layer import LOGITS, two_layer_step

KEPT_NUMBERS = 1 << 17
"""The numbers of features that stay for the step at most: what a second level of cache holds."""


@function_value(FILL_LOGITS)
def tabular_logits(theta, prompts, array, rows, logits):
    """Logits are entries of the table; array and rows are not read."""
    for i in range(0, theta.shape[1], WIDTH):
        for b in range(logits.shape[0]):
            read_blocks(theta, prompts, b, i, logits)


@function_value(TAKE_STEP)
def tabular_step(theta, prompts, array, rows, covectors, step):
    """Theta's block of the prompt moves by step times the covector."""
    for i in range(0, theta.shape[1], WIDTH):
        for b in range(covectors.shape[0]):
            add_to_blocks(covectors, prompts, b, i, step, theta)


@function_value(FILL_LOGITS)
def dense_logits(theta, prompts, array, rows, logits):
    """Logits are phi(m, k) . theta, with array[0] the features (M, at least D d): those of the prompts drawn, spread in the rows.

    Where there are rows enough for all groups, they stay there for the step.
    """
    n, size, features = theta.shape[1], array.shape[2], rows.reshape(-1, WIDTH)
    stay = rows.shape[0] >= logits.shape[0] * size
    for i in range(0, n, WIDTH):
        for b in range(logits.shape[0]):
            first = (b * n + i) // WIDTH * size if stay else 0
            spread(array[0], load(prompts, b, i), features[first : first + size])
            for k in range(logits.shape[1]):
                logit = reals(0.0)
                for j in range(theta.shape[0]):
                    logit = logit + load(features, first + k * theta.shape[0] + j, 0) * load(theta, j, i)
                store(logit, logits, b, k, i)


@function_value(TAKE_STEP)
def dense_step(theta, prompts, array, rows, covectors, step):
    """Theta moves by step times sum_k c_k phi(m, k), group by group; the features are those that the logits have left, if any."""
    n, size, features = theta.shape[1], array.shape[2], rows.reshape(-1, WIDTH)
    stay = rows.shape[0] >= covectors.shape[0] * size
    for i in range(0, n, WIDTH):
        for b in range(covectors.shape[0]):
            first = (b * n + i) // WIDTH * size if stay else 0
            if not stay:
                spread(array[0], load(prompts, b, i), features[:size])
            for j in range(theta.shape[0]):
                total = reals(0.0)
                for k in range(covectors.shape[1]):
                    total = total + load(covectors, b, k, i) * load(features, first + k * theta.shape[0] + j, 0)
                store(load(theta, j, i) + step * total, theta, j, i)


@function_value(FILL_LOGITS)
def picked_logits(theta, prompts, array, rows, logits):
    """Logits are phi(m, k) . theta, with array[0] the features (D d, at least M), in columns that are picked from."""
    for i in range(0, theta.shape[1], WIDTH):
        for b in range(logits.shape[0]):
            own = load(prompts, b, i)
            for k in range(logits.shape[1]):
                logit = reals(0.0)
                for j in range(theta.shape[0]):
                    logit = logit + pick(array[0], k * theta.shape[0] + j, own) * load(theta, j, i)
                store(logit, logits, b, k, i)


@function_value(TAKE_STEP)
def picked_step(theta, prompts, array, rows, covectors, step):
    """Theta moves by step times sum_k c_k phi(m, k), group by group."""
    for i in range(0, theta.shape[1], WIDTH):
        for b in range(covectors.shape[0]):
            own = load(prompts, b, i)
            for j in range(theta.shape[0]):
                total = reals(0.0)
                for k in range(covectors.shape[1]):
                    total = total + load(covectors, b, k, i) * pick(array[0], k * theta.shape[0] + j, own)
                store(load(theta, j, i) + step * total, theta, j, i)


@function_value(FILL_LOGITS)
def few_logits(theta, prompts, array, rows, logits):
    """Logits are phi(m, k) . theta, with array[0] the features (M D, d): all prompts' in the rows (M D, N), and a choice."""
    for i in range(0, theta.shape[1], WIDTH):
        for row in range(rows.shape[0]):
            logit = array[0, row, 0] * load(theta, 0, i)
            for j in range(1, theta.shape[0]):
                logit = logit + array[0, row, j] * load(theta, j, i)
            store(logit, rows, row, i)
        for b in range(logits.shape[0]):
            read_blocks(rows, prompts, b, i, logits)


@function_value(TAKE_STEP)
def few_step(theta, prompts, array, rows, covectors, step):
    """Theta moves by step times sum_mk c_mk phi(m, k), with the covectors of a prompt added up first, in the rows (M D, N)."""
    for i in range(0, theta.shape[1], WIDTH):
        for row in range(rows.shape[0]):
            store(reals(0.0), rows, row, i)
        for b in range(covectors.shape[0]):
            add_to_blocks(covectors, prompts, b, i, step, rows)
        for j in range(theta.shape[0]):
            x = load(theta, j, i)
            for row in range(rows.shape[0]):
                x = x + array[0, row, j] * load(rows, row, i)
            store(x, theta, j, i)


@function_value(FILL_LOGITS)
def head_logits(theta, prompts, array, rows, logits):
    """Logits are W h_m, with array[0] the hidden states (M, H); one run at a time, whose parameters are the lanes."""
    width, flat = array.shape[2], theta.ravel()
    whole = width - width % WIDTH
    for b in range(logits.shape[0]):
        m = np.uintp(prompts[b, 0])
        for k in range(logits.shape[1]):
            sums = reals(0.0)
            for j in range(0, whole, WIDTH):
                sums = sums + load(array, 0, m, j) * load(flat, k * width + j)
            logit = sum_lanes(sums)
            for j in range(whole, width):
                logit += array[0, m, j] * flat[k * width + j]
            logits[b, k, 0] = logit


@function_value(TAKE_STEP)
def head_step(theta, prompts, array, rows, covectors, step):
    """Row k of the head moves by step times c_k h_m; one run at a time."""
    width, flat = array.shape[2], theta.ravel()
    whole = width - width % WIDTH
    for b in range(covectors.shape[0]):
        m = np.uintp(prompts[b, 0])
        for k in range(covectors.shape[1]):
            weight, start = step * covectors[b, k, 0], k * width
            for j in range(0, whole, WIDTH):
                store(load(flat, start + j) + weight * load(array, 0, m, j), flat, start + j)
            for j in range(whole, width):
                flat[start + j] += weight * array[0, m, j]


def ascent(policy: Policy, batch_size: int) -> Ascent:
    """Return the logits and the step of a policy: its own for the package's maps, dense features for any other class."""
    logit_map = policy.logit_map
    if type(logit_map) is TabularMap:
        return Ascent(tabular_logits.value, tabular_step.value, np.empty((0, 0, 0)), 0, alone=False)
    if type(logit_map) is HeadMap:
        return Ascent(head_logits.value, head_step.value, logit_map.hidden[None].copy(), 0, alone=True)
    if type(logit_map) is TwoLayerMap:
        fill_logits, rows = LOGITS[logit_map.activation].value, layer_rows(logit_map, batch_size)
        return Ascent(fill_logits, two_layer_step.value, layer_array(logit_map), rows, alone=False)
    if not isinstance(logit_map, LogitMap):
        raise ValueError(
            f"policy must have logits that are linear in theta, or be a TwoLayerSoftmax, to be trained, got {policy!r}"
        )
    by_prompt = features(logit_map)
    if is_cheaper_for_all(policy.n_prompts, policy.dimension, batch_size):
        array = by_prompt.reshape(1, -1, policy.dimension)
        return Ascent(few_logits.value, few_step.value, array, array.shape[1], alone=False)
    if policy.n_prompts <= PICKED:
        array = turned(by_prompt.reshape(policy.n_prompts, -1))[None]
        return Ascent(picked_logits.value, picked_step.value, array, 0, alone=False)
    array = whole_rows(by_prompt.reshape(len(by_prompt), -1))[None]
    size = array.shape[2]
    rows = batch_size * size if batch_size * size * LANES <= KEPT_NUMBERS else size
    return Ascent(dense_logits.value, dense_step.value, array, rows, alone=False)


def is_cheaper_for_all(n_prompts: int, dimension: int, batch_size: int) -> bool:
    """Return whether logits of all prompts, and a choice among them, cost less than the features of the prompts drawn.

    One number of the features costs 1.2 cycles to spread and use twice, or 0.6 to pick twice.  It costs 0.16 for each use where
    all lanes share it.  Choosing a logit, and adding to it, takes 5.  These costs were measured in steps of 2 to 128 dimensions.
    The rule does not depend on whether features can be picked, so that all processors give the same bits.
    """
    return n_prompts * dimension <= 4 * batch_size * (dimension - 4)
