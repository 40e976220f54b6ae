"""The compiled driver of training runs: uniforms to iterates; a pure function of arrays."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import KERNEL, Batch, compile_function
from grpo_theory.simulate.ascent import FILL_LOGITS, TAKE_STEP

Array = NDArray[np.float64]

_F1, _F2, _F3 = numba.float64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1]
_F4 = numba.float64[:, :, :, ::1]
_I2 = numba.int64[:, ::1]


class Environment(NamedTuple):
    """What a training run draws from.

    Attributes
    ----------
    prompt_threshold, prompt_choices : ndarray, shapes (1, M) and (1, 2 M)
        The prompts' alias table.
    values : ndarray, shape (L,)
        The reward values.
    laws : ndarray, shape (M, K, L)
        Probabilities of the values.
    mean_rewards, mean_squares : ndarray, shape (M, K)
        E[Z | m, k] and E[Z^2 | m, k].
    log_reference : ndarray, shape (M, K)
        Log probabilities of the KL penalty's reference.
    strength : ndarray, shape (1,)
        Of the KL penalty; 0 for none.
    gram : ndarray, shape (M, K, K)
        Phi Phi' of the policy, or of shape (0, 0, 0) where the estimator reads no score norm.
    """

    prompt_threshold: Array
    prompt_choices: NDArray[np.int64]
    values: Array
    laws: Array
    mean_rewards: Array
    mean_squares: Array
    log_reference: Array
    strength: Array
    gram: Array


class Trace(NamedTuple):
    """What is kept of R runs on the way; all empty where nothing is.

    Attributes
    ----------
    path : ndarray, shape (R, n + 1, d)
        The iterates; the first is given.
    mean_rewards : ndarray, shape (R, n)
        The mean reward of each step's rollouts, the penalty in it.
    hessian : ndarray, shape (R, d, d)
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 7).
    window : ndarray of int, shape (2,)
        The steps of the window: the first, and one past the last.
    features : ndarray, shape (M, K, d)
        The policy's features.
    """

    path: Array
    mean_rewards: Array
    hessian: Array
    window: NDArray[np.int64]
    features: Array


NO_TRACE = Trace(np.empty((0, 0, 0)), np.empty((0, 0)), np.empty((0, 0, 0)), np.zeros(2, np.int64), np.empty((0, 0, 0)))

_ENVIRONMENT = types.NamedTuple((_F2, _I2, _F1, _F3, _F2, _F2, _F2, _F1, _F3), Environment)
_TRACE = types.NamedTuple((_F3, _F2, _F3, numba.int64[::1], _F3), Trace)


@numba.njit(error_model="numpy", nogil=True)
def add_hessian(total, features, pi, responses, rewards, strength, share):
    """Add share * sum_g {(Z_g - C_g) (W_g W_g' - F) - strength W_g W_g'} of one group to the total (d, d).

    C_g is the mean of the group's other rewards (0 where there are none), W the score, and F = E W W' = -grad W.
    """
    n_responses, dimension = features.shape
    group_size = rewards.shape[0]
    mean = rewards.mean() if group_size > 1 else 0.0
    scale = group_size / (group_size - 1.0) if group_size > 1 else 1.0
    weights = np.zeros(n_responses)
    balance = 0.0
    for g in range(group_size):
        advantage = scale * (rewards[g] - mean)
        weights[responses[g]] += advantage - strength
        balance += advantage
    centre = np.zeros(dimension)
    for k in range(n_responses):
        for i in range(dimension):
            centre[i] += pi[k] * features[k, i]
    for k in range(n_responses):
        weight = share * (weights[k] - balance * pi[k])
        for i in range(dimension):
            for j in range(dimension):
                total[i, j] += weight * (features[k, i] - centre[i]) * (features[k, j] - centre[j])


def advance(
    kernel,
    fill_logits,
    take_step,
    array,
    parameters,
    environment,
    ball,
    prompt_uniforms,
    response_uniforms,
    first,
    last,
    steps,
    start,
    theta,
    average,
    farthest,
    trace,
):
    """Advance R runs by the steps `first` to `last` (excluded) of the uniforms (R, S, B) and (R, S, B, G).

    steps (S,) are the step sizes; `start` is the number of steps taken before those of the uniforms; ball is the centre (d,)
    followed by the radius, or empty; theta and average (R, d) are advanced in place, and
    farthest (R, 1 + d), the largest distance so far from the point that follows it, is kept; the trace is filled.
    """
    n_runs, _, batch_size, group_size = response_uniforms.shape
    n_prompts, n_responses, n_values = environment.laws.shape
    dimension = theta.shape[1]
    has_norms = environment.gram.shape[0] > 0
    strength = environment.strength[0]
    has_trace = trace.path.shape[0] > 0
    prompts = np.empty(batch_size, dtype=np.int64)
    responses = np.empty((batch_size, group_size), dtype=np.int64)
    rewards = np.empty((batch_size, group_size))
    score_norms = np.full((batch_size, group_size), np.nan)
    lengths = np.ones((batch_size, group_size), dtype=np.int64)
    values = np.empty(batch_size)
    standard_deviations = np.empty(batch_size)
    optimal_baselines = np.full(batch_size, np.nan)
    advantages = np.empty((batch_size, group_size))
    pi = np.empty((batch_size, n_responses))
    norms = np.full(n_responses, np.nan)
    penalties = np.zeros(n_responses)
    logits = np.empty(n_responses)
    covector = np.empty(n_responses)
    batch = Batch(rewards, score_norms, lengths, values, standard_deviations, optimal_baselines, parameters)
    for r in range(n_runs):
        for s in range(first, last):
            for b in range(batch_size):
                x = prompt_uniforms[r, s, b] * n_prompts
                j = int(x)
                m = environment.prompt_choices[0, 2 * j + int(x - j >= environment.prompt_threshold[0, j])]
                prompts[b] = m
                fill_logits(theta[r], m, array, logits)
                highest = logits[0]
                for k in range(1, n_responses):
                    highest = max(highest, logits[k])
                total = 0.0
                for k in range(n_responses):
                    pi[b, k] = np.exp(logits[k] - highest)
                    total += pi[b, k]
                log_total = np.log(total) + highest
                value = 0.0
                square = 0.0
                for k in range(n_responses):
                    pi[b, k] /= total
                    if strength > 0.0:
                        penalties[k] = strength * (logits[k] - log_total - environment.log_reference[m, k])
                    mean = environment.mean_rewards[m, k]
                    value += pi[b, k] * (mean - penalties[k])
                    square += pi[b, k] * (environment.mean_squares[m, k] + penalties[k] * (penalties[k] - 2.0 * mean))
                values[b] = value
                standard_deviations[b] = np.sqrt(max(square - value * value, 0.0))
                if has_norms:
                    both = 0.0
                    for k in range(n_responses):
                        norms[k] = 0.0
                        for i in range(n_responses):
                            norms[k] -= environment.gram[m, k, i] * pi[b, i]
                        both -= pi[b, k] * norms[k]
                    power = 0.0
                    weighted = 0.0
                    for k in range(n_responses):
                        norms[k] = max(environment.gram[m, k, k] + 2.0 * norms[k] + both, 0.0)
                        power += pi[b, k] * norms[k]
                        weighted += pi[b, k] * norms[k] * (environment.mean_rewards[m, k] - penalties[k])
                    optimal_baselines[b] = weighted / power if power > 0.0 else value
                for g in range(group_size):
                    u = response_uniforms[r, s, b, g]
                    k = 0
                    while k < n_responses - 1 and u >= pi[b, k]:
                        u -= pi[b, k]
                        k += 1
                    # What is left of u, relative to pi_k, is uniform again, and draws the reward.
                    u = u / pi[b, k] if pi[b, k] > 0.0 else 0.0
                    j = 0
                    while j < n_values - 1 and u >= environment.laws[m, k, j]:
                        u -= environment.laws[m, k, j]
                        j += 1
                    responses[b, g] = k
                    rewards[b, g] = environment.values[j] - penalties[k]
                    score_norms[b, g] = norms[k]
                    advantages[b, g] = np.nan
            kernel(batch, advantages)
            if has_trace:
                trace.mean_rewards[r, start + s] = rewards.mean()
                if trace.window[0] <= start + s < trace.window[1]:
                    share = 1.0 / (batch_size * group_size * (trace.window[1] - trace.window[0]))
                    for b in range(batch_size):
                        features = trace.features[prompts[b]]
                        add_hessian(trace.hessian[r], features, pi[b], responses[b], rewards[b], strength, share)
            for b in range(batch_size):
                total = 0.0
                for k in range(n_responses):
                    covector[k] = 0.0
                for g in range(group_size):
                    covector[responses[b, g]] += advantages[b, g]
                    total += advantages[b, g]
                for k in range(n_responses):
                    covector[k] -= total * pi[b, k]
                take_step(theta[r], prompts[b], array, covector, steps[s] / (batch_size * group_size))
            if ball.shape[0] > 0:
                distance = 0.0
                for i in range(dimension):
                    distance += (theta[r, i] - ball[i]) ** 2
                if distance > ball[dimension] ** 2:
                    shrink = ball[dimension] / np.sqrt(distance)
                    for i in range(dimension):
                        theta[r, i] = ball[i] + shrink * (theta[r, i] - ball[i])
            distance = 0.0
            for i in range(dimension):
                average[r, i] += (theta[r, i] - average[r, i]) / (start + s + 1.0)
                distance += (theta[r, i] - farthest[r, 1 + i]) ** 2
                if has_trace:
                    trace.path[r, start + s + 1, i] = theta[r, i]
            farthest[r, 0] = max(farthest[r, 0], np.sqrt(distance))


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel and policy."""
    counts = (numba.int64, numba.int64)
    streams = (_F3, _F4, *counts, _F1, numba.int64)
    signature = (KERNEL, FILL_LOGITS, TAKE_STEP, _F3, _F1, _ENVIRONMENT, _F1, *streams, _F2, _F2, _F2, _TRACE)
    return compile_function(advance, numba.void(*signature))
