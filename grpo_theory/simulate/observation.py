"""The compiled drivers of the gradient simulator: blocks of uniforms to outcomes, outcomes to observations of an estimator.

A block is cut into strips of S replications, whose N = B S groups lie side by side.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F1, F2, F3, F4, I1, I2, compile_function, record_type, stage
from grpo_theory.estimation.kernel import KERNEL, Batch
from grpo_theory.simulate.covector import add_tokens, centre, pool_tokens
from grpo_theory.simulate.draw import draw_outcomes, draw_prompts, look_up
from grpo_theory.simulate.geometry import SIGNATURE as SQUARED_NORM
from grpo_theory.simulate.show import fill_advantages, show_prompts, show_responses

I3 = numba.int64[:, :, ::1]


class Tables(NamedTuple):
    """What the draws come from: the problem at the policy that samples.

    Attributes
    ----------
    prompt_threshold, prompt_choices : ndarray, shapes (1, M) and (1, 2 M)
        The prompts' alias table.
    thresholds : ndarray, shape (O - 1, M)
        The distribution function of the outcomes.
    responses : ndarray of int64, shape (O,)
    """

    prompt_threshold: Array
    prompt_choices: Integers
    thresholds: Array
    responses: Integers


class Plan(NamedTuple):
    """An estimator as the driver sees it.

    Attributes
    ----------
    rewards : ndarray, shape (O, M)
        Of the outcomes, less the penalty if it is in the reward.
    norms : ndarray, shape (K, M)
        Squared score norms; shape (0, 0) if the kernel does not read them.
    seen_lengths : ndarray of int64, shape (K,)
        The responses' lengths; empty if the kernel does not read them.
    fields : ndarray, shape (3, M)
        What oracles know; shape (0, 0) if the kernel reads none of it.
    parameters : ndarray, shape (P,)
    at_a_time : int
        How many groups the kernel is given at once.
    gains : ndarray, shape (K, 2, T, M)
    drifts : ndarray, shape (K, T, M), or (0, 0, 0)
    pools : int
        See `pool_tokens`.
    """

    rewards: Array
    norms: Array
    seen_lengths: Integers
    fields: Array
    parameters: Array
    at_a_time: int
    gains: Array
    drifts: Array
    pools: int


class Truth(NamedTuple):
    """What the observations are measured against: the problem at theta.

    Attributes
    ----------
    tokens : ndarray, shape (D, M)
        Probabilities of tokens given their prefixes.
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    vocabulary_size : int
    covectors : ndarray, shape (D, M)
        Of the prompts' gradients.
    logits : ndarray, shape (1 + J, M, D)
        Phi v for v the true gradient, then the J directions.
    gradient_power : float
        ||g||^2.
    """

    tokens: Array
    edges: Integers
    lengths: Integers
    vocabulary_size: int
    covectors: Array
    logits: Array
    gradient_power: float


TABLES = record_type(Tables, F2, I2, F2, I1)
PLAN = record_type(Plan, F2, F2, I1, F2, F1, numba.int64, F4, F3, numba.int64)
TRUTH = record_type(Truth, F2, I2, I1, numba.int64, F2, F3, numba.float64)


def fill_outcomes(uniforms, tables, prompts, outcomes):
    """Turn uniforms (strips, 1 + G, N) into prompts (strips, N) and outcomes (strips, G, N)."""
    thresholds = np.empty((tables.thresholds.shape[0], prompts.shape[1]))
    for s in range(prompts.shape[0]):
        draw_prompts(uniforms[s, 0], tables.prompt_threshold, tables.prompt_choices, prompts[s])
        look_up(tables.thresholds, prompts[s], thresholds)
        draw_outcomes(uniforms[s, 1:], thresholds, outcomes[s])


@stage
def measure(squared_norm, array, covectors, prompts, batch_size, truth, observations):
    """Observe the estimates of a strip whose groups have these covectors (D, N).

    Row r of `observations` (S, 2 + J) is: the squared error of the batch's estimate about g; the mean over its groups of the
    squared error about the group's own g(x); the estimate along each of the J directions.
    """
    n_logits, n_prompts = truth.tokens.shape
    n_replications = observations.shape[0]
    slots = np.full(n_prompts, -1)
    distinct = np.empty(min(batch_size, n_prompts), dtype=np.int64)
    totals = np.empty((min(batch_size, n_prompts), n_logits))
    prompt = np.empty(1, dtype=np.int64)
    error = np.empty((1, n_logits))
    for r in range(n_replications):
        used = 0
        group_error = 0.0
        for b in range(batch_size):
            i = np.uintp(b * n_replications + r)
            m = np.uintp(prompts[i])
            u = slots[m]
            if u < 0:
                u = used
                slots[m] = u
                distinct[u] = m
                for d in range(n_logits):
                    totals[u, d] = 0.0
                used += 1
            for d in range(n_logits):
                error[0, d] = covectors[d, i] - truth.covectors[d, m]
                totals[u, d] += covectors[d, i] / batch_size
            prompt[0] = m
            group_error += squared_norm(1, prompt, error, array)
        for j in range(truth.logits.shape[0]):
            along = 0.0
            for u in range(used):
                for d in range(n_logits):
                    along += totals[u, d] * truth.logits[j, distinct[u], d]
            observations[r, j + 1] = along
        power = squared_norm(used, distinct, totals, array)
        observations[r, 0] = power - 2.0 * observations[r, 1] + truth.gradient_power
        observations[r, 1] = group_error / batch_size
        for u in range(used):
            slots[distinct[u]] = -1


def fill_observations(kernel, squared_norm, array, plan, truth, prompts, outcomes, responses, batch_size, observations):
    """Observe one estimator on the prompts (strips, N) and outcomes (strips, G, N) of a block: rows (strips, S, 2 + J)."""
    n_strips, group_size, n_groups = outcomes.shape
    n_replications = n_groups // batch_size
    places = np.empty(n_groups, dtype=np.int64)
    for i in range(n_groups):
        places[i] = (i % n_replications) * batch_size + i // n_replications
    batch = Batch(
        np.empty((n_groups, group_size)),
        np.full((n_groups, group_size), np.nan),
        np.ones((n_groups, group_size), dtype=np.int64),
        np.full(n_groups, np.nan),
        np.full(n_groups, np.nan),
        np.full(n_groups, np.nan),
        plan.parameters,
    )
    advantages = np.empty((n_groups, group_size))
    tokens = np.empty((truth.tokens.shape[0], n_groups))
    covectors = np.empty((truth.tokens.shape[0], n_groups))
    for s in range(n_strips):
        rows = prompts[s]
        show_prompts(plan.fields, rows, places, batch.values, batch.standard_deviations, batch.optimal_baselines)
        show_responses(
            outcomes[s],
            rows,
            places,
            responses,
            plan.rewards,
            plan.norms,
            plan.seen_lengths,
            batch.rewards,
            batch.squared_score_norms,
            batch.lengths,
        )
        fill_advantages(kernel, batch, plan.at_a_time, advantages)
        add_tokens(
            outcomes[s], 0, places, advantages, responses, truth.edges, truth.lengths, plan.gains, plan.drifts, rows, covectors
        )
        pool_tokens(outcomes[s], 0, plan.pools, responses, truth.lengths, covectors)
        look_up(truth.tokens, rows, tokens)
        centre(covectors, tokens, truth.vocabulary_size)
        for d in range(covectors.shape[0]):
            for i in range(n_groups):
                covectors[d, i] /= group_size
        measure(squared_norm, array, covectors, rows, batch_size, truth, observations[s])


@cache
def compiled_fill_outcomes() -> Any:
    """Compile `fill_outcomes`, or read it from the cache."""
    return compile_function(fill_outcomes, numba.void(F3, TABLES, I2, I3))


@cache
def compiled_fill_observations() -> Any:
    """Compile `fill_observations`, or read it from the cache; one machine code serves every kernel, policy and composition."""
    norm = types.FunctionType(SQUARED_NORM)
    return compile_function(fill_observations, numba.void(KERNEL, norm, F3, PLAN, TRUTH, I2, I3, I1, numba.int64, F3))
