"""The compiled drivers: uniforms to draws, draws to observations; pure functions of arrays."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import KERNEL, Batch, compile_function
from grpo_theory.exact.outcomes import Outcomes
from grpo_theory.problem import Bandit
from grpo_theory.simulate.alias import alias_table
from grpo_theory.simulate.geometry import SQUARED_NORM

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_F1, _F2, _F3 = numba.float64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1]
_I1, _I2, _I3 = numba.int64[::1], numba.int64[:, ::1], numba.int64[:, :, ::1]


class Tables(NamedTuple):
    """What the draws come from.

    Attributes
    ----------
    prompt_threshold, prompt_choices : ndarray, shapes (1, M) and (1, 2 M)
    threshold, choices : ndarray, shapes (M, O) and (M, 2 O)
    responses : ndarray of int64, shape (O,)
    rewards : ndarray, shape (M, O)
    squared_score_norms : ndarray, shape (M, O)
    """

    prompt_threshold: Array
    prompt_choices: Integers
    threshold: Array
    choices: Integers
    responses: Integers
    rewards: Array
    squared_score_norms: Array


class Draws(NamedTuple):
    """One block of R replications.

    Attributes
    ----------
    prompts : ndarray of int64, shape (R, B)
    responses : ndarray of int64, shape (R, B, G)
    rewards, squared_score_norms : ndarray, shape (R, B, G)
    """

    prompts: Integers
    responses: Integers
    rewards: Array
    squared_score_norms: Array


class Truth(NamedTuple):
    """What the observations are measured against.

    Attributes
    ----------
    probabilities : ndarray, shape (M, K)
        pi(k | m).
    values, standard_deviations, optimal_baselines : ndarray, shape (M,)
    covectors : ndarray, shape (M, K)
        Of the prompts' gradients.
    logits : ndarray, shape (1 + J, M, K)
        Phi v for v the true gradient, then the J directions.
    gradient_power : ndarray, shape (1,)
        ||g||^2.
    """

    probabilities: Array
    values: Array
    standard_deviations: Array
    optimal_baselines: Array
    covectors: Array
    logits: Array
    gradient_power: Array


def tabulate(bandit: Bandit, table: Outcomes) -> Tables:
    """Return the tables from which a problem's prompts and responses are drawn."""
    return Tables(
        *alias_table(bandit.prompt_weights[None]),
        *alias_table(table.probabilities),
        table.responses,
        np.ascontiguousarray(table.rewards),
        np.ascontiguousarray(table.squared_score_norms[:, table.responses]),
    )


_TABLES = types.NamedTuple((_F2, _I2, _F2, _I2, _I1, _F2, _F2), Tables)
_DRAWS = types.NamedTuple((_I2, _I3, _F3, _F3), Draws)
_TRUTH = types.NamedTuple((_F2, _F1, _F1, _F1, _F2, _F3, _F1), Truth)


def fill_draws(prompt_uniforms, response_uniforms, tables, draws):
    """Turn uniforms (R, B) and (R, B, G) into prompts and whole responses: one uniform, one draw."""
    n_replications, batch_size, group_size = response_uniforms.shape
    n_prompts = tables.prompt_threshold.shape[1]
    n_outcomes = tables.threshold.shape[1]
    for r in range(n_replications):
        for b in range(batch_size):
            x = prompt_uniforms[r, b] * n_prompts
            j = int(x)
            m = np.uintp(tables.prompt_choices[0, 2 * j + int(x - j >= tables.prompt_threshold[0, j])])
            draws.prompts[r, b] = m
            for g in range(group_size):
                x = response_uniforms[r, b, g] * n_outcomes
                # Unsigned, for numba tests signed indices for being negative; a look-up and not a branch, for which way
                # it goes cannot be predicted.
                place = np.uintp(x)
                o = np.uintp(tables.choices[m, np.uintp(2) * place + np.uintp(x - place >= tables.threshold[m, place])])
                draws.responses[r, b, g] = tables.responses[o]
                draws.rewards[r, b, g] = tables.rewards[m, o]
                draws.squared_score_norms[r, b, g] = tables.squared_score_norms[m, o]


def fill_observations(kernel, squared_norm, array, parameters, draws, truth, observations):
    """Observe one estimator on a block of draws.

    Row r of `observations` (R, 2 + J) is: the squared error of the batch's estimate about g; the mean over its groups of the
    squared error about the group's own g(x); the estimate along each of the J directions.
    """
    n_replications, batch_size, group_size = draws.responses.shape
    n_prompts, n_responses = truth.probabilities.shape
    n_directions = truth.logits.shape[0] - 1
    advantages = np.empty((batch_size, group_size))
    lengths = np.ones((batch_size, group_size), dtype=np.int64)
    values = np.empty(batch_size)
    standard_deviations = np.empty(batch_size)
    optimal_baselines = np.empty(batch_size)
    slots = np.full(n_prompts, -1)
    distinct = np.empty(min(batch_size, n_prompts), dtype=np.int64)
    totals = np.empty((min(batch_size, n_prompts), n_responses))
    even = np.empty(n_responses)
    odd = np.empty(n_responses)
    prompt = np.empty(1, dtype=np.int64)
    error = np.empty((1, n_responses))
    for r in range(n_replications):
        for b in range(batch_size):
            m = draws.prompts[r, b]
            values[b] = truth.values[m]
            standard_deviations[b] = truth.standard_deviations[m]
            optimal_baselines[b] = truth.optimal_baselines[m]
            for g in range(group_size):
                advantages[b, g] = np.nan
        batch = Batch(
            draws.rewards[r],
            draws.squared_score_norms[r],
            lengths,
            values,
            standard_deviations,
            optimal_baselines,
            parameters,
        )
        kernel(batch, advantages)
        used = 0
        group_error = 0.0
        for b in range(batch_size):
            m = draws.prompts[r, b]
            for k in range(n_responses):
                even[k] = 0.0
                odd[k] = 0.0
            total = 0.0
            # Two histograms, for a sum into one place waits for the sum before it.
            for g in range(0, group_size - 1, 2):
                even[draws.responses[r, b, g]] += advantages[b, g]
                odd[draws.responses[r, b, g + 1]] += advantages[b, g + 1]
                total += advantages[b, g] + advantages[b, g + 1]
            if group_size % 2 == 1:
                even[draws.responses[r, b, group_size - 1]] += advantages[b, group_size - 1]
                total += advantages[b, group_size - 1]
            u = slots[m]
            if u < 0:
                u = used
                slots[m] = u
                distinct[u] = m
                for k in range(n_responses):
                    totals[u, k] = 0.0
                used += 1
            for k in range(n_responses):
                covector = (even[k] + odd[k] - total * truth.probabilities[m, k]) / group_size
                error[0, k] = covector - truth.covectors[m, k]
                totals[u, k] += covector / batch_size
            prompt[0] = m
            group_error += squared_norm(1, prompt, error, array)
        for j in range(n_directions + 1):
            along = 0.0
            for u in range(used):
                for k in range(n_responses):
                    along += totals[u, k] * truth.logits[j, distinct[u], k]
            observations[r, j + 1] = along
        power = squared_norm(used, distinct, totals, array)
        observations[r, 0] = power - 2.0 * observations[r, 1] + truth.gradient_power[0]
        observations[r, 1] = group_error / batch_size
        for u in range(used):
            slots[distinct[u]] = -1


@cache
def compiled_fill_draws() -> Any:
    """Compile `fill_draws`, or read it from the cache."""
    return compile_function(fill_draws, numba.void(_F2, _F3, _TABLES, _DRAWS))


@cache
def compiled_fill_observations() -> Any:
    """Compile `fill_observations`, or read it from the cache; one machine code serves every kernel."""
    return compile_function(fill_observations, numba.void(KERNEL, SQUARED_NORM, _F3, _F1, _DRAWS, _TRUTH, _F2))
