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
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 13).
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

    def of(self, runs: slice) -> "Trace":
        """Return what is kept of some of the runs."""
        return Trace(self.path[runs], self.mean_rewards[runs], self.hessian[runs], self.window, self.features)


NO_TRACE = Trace(np.empty((0, 0, 0)), np.empty((0, 0)), np.empty((0, 0, 0)), np.zeros(2, np.int64), np.empty((0, 0, 0)))

_ENVIRONMENT = types.NamedTuple((_F2, _I2, _F1, _F3, _F2, _F2, _F2, _F1, _F3), Environment)
_TRACE = types.NamedTuple((_F3, _F2, _F3, numba.int64[::1], _F3), Trace)


_stage = numba.njit(error_model="numpy", nogil=True)  # compiled as a part of `advance`, and cached with it


@_stage
def draw_prompts(uniforms, s, environment, prompts):
    """Draw the prompts (R B,) of step s from the uniforms (R, S, B): one uniform, one look-up in the alias table."""
    n_runs, _, batch_size = uniforms.shape
    n_prompts = environment.prompt_threshold.shape[1]
    for r in range(n_runs):
        for b in range(batch_size):
            x = uniforms[r, s, b] * n_prompts
            j = np.uintp(x)
            above = np.uintp(x - j >= environment.prompt_threshold[0, j])
            prompts[r * batch_size + b] = environment.prompt_choices[0, np.uintp(2) * j + above]


@_stage
def fill_policies(logits, prompts, environment, pi, penalties, values, standard_deviations, optimal_baselines, norms):
    """Turn the logits (K, N) of N groups into the policy's probabilities, and into what oracles know of the prompt."""
    n_responses, n_groups = logits.shape
    strength = environment.strength[0]
    highest = np.empty(n_groups)
    totals = np.zeros(n_groups)
    squares = np.zeros(n_groups)
    for i in range(n_groups):
        highest[i] = logits[0, i]
        values[i] = 0.0
    for k in range(1, n_responses):
        for i in range(n_groups):
            highest[i] = max(highest[i], logits[k, i])
    for k in range(n_responses):
        for i in range(n_groups):
            pi[k, i] = np.exp(logits[k, i] - highest[i])
    for k in range(n_responses):
        for i in range(n_groups):
            totals[i] += pi[k, i]
    if strength > 0.0:
        for i in range(n_groups):
            highest[i] += np.log(totals[i])
        for k in range(n_responses):
            for i in range(n_groups):
                log_ratio = logits[k, i] - highest[i] - environment.log_reference[np.uintp(prompts[i]), k]
                penalties[k, i] = strength * log_ratio
    for k in range(n_responses):
        for i in range(n_groups):
            pi[k, i] /= totals[i]
        for i in range(n_groups):
            m = np.uintp(prompts[i])
            mean, penalty = environment.mean_rewards[m, k], penalties[k, i]
            values[i] += pi[k, i] * (mean - penalty)
            squares[i] += pi[k, i] * (environment.mean_squares[m, k] + penalty * (penalty - 2.0 * mean))
    for i in range(n_groups):
        standard_deviations[i] = np.sqrt(max(squares[i] - values[i] * values[i], 0.0))
    if environment.gram.shape[0] == 0:
        return
    for i in range(n_groups):
        m = np.uintp(prompts[i])
        both = 0.0
        for k in range(n_responses):
            norms[k, i] = 0.0
            for other in range(n_responses):
                norms[k, i] -= environment.gram[m, k, other] * pi[other, i]
            both -= pi[k, i] * norms[k, i]
        power = 0.0
        weighted = 0.0
        for k in range(n_responses):
            norms[k, i] = max(environment.gram[m, k, k] + 2.0 * norms[k, i] + both, 0.0)
            power += pi[k, i] * norms[k, i]
            weighted += pi[k, i] * norms[k, i] * (environment.mean_rewards[m, k] - penalties[k, i])
        optimal_baselines[i] = weighted / power if power > 0.0 else values[i]


@_stage
def draw_responses(uniforms, s, prompts, environment, pi, penalties, norms, responses, rewards, score_norms):
    """Draw the responses (G, N) of step s from the uniforms (R, S, B, G), and their rewards and score norms (N, G).

    A uniform is taken along the distribution function, less one probability at a time; the response is the number of times
    that something is left.
    """
    n_runs, _, batch_size, group_size = uniforms.shape
    n_responses, n_groups = pi.shape
    left = np.empty(n_groups)
    rest = np.empty(n_groups)
    for g in range(group_size):
        for r in range(n_runs):
            for b in range(batch_size):
                left[r * batch_size + b] = uniforms[r, s, b, g]
        for i in range(n_groups):
            rest[i] = left[i]
            responses[g, i] = 0
        for k in range(n_responses - 1):
            for i in range(n_groups):
                left[i] -= pi[k, i]
                responses[g, i] += left[i] >= 0.0
                rest[i] = left[i] if left[i] >= 0.0 else rest[i]
        for i in range(n_groups):
            m, drawn = np.uintp(prompts[i]), np.uintp(responses[g, i])
            # What is left, relative to pi_k, is uniform again, and draws the reward.
            u = rest[i] / pi[drawn, i] if pi[drawn, i] > 0.0 else 0.0
            j = np.uintp(0)
            for value in range(environment.values.shape[0] - 1):
                u -= environment.laws[m, drawn, value]
                j += np.uintp(u >= 0.0)
            rewards[i, g] = environment.values[j] - penalties[drawn, i]
        if environment.gram.shape[0] > 0:
            for i in range(n_groups):
                score_norms[i, g] = norms[np.uintp(responses[g, i]), i]


@_stage
def fill_covectors(responses, advantages, pi, covectors):
    """Sum the advantages (N, G) of each response and subtract what the policy expects, (K, N)."""
    n_groups, group_size = advantages.shape
    totals = np.zeros(n_groups)
    covectors[:, :] = 0.0
    for g in range(group_size):
        for i in range(n_groups):
            covectors[np.uintp(responses[g, i]), i] += advantages[i, g]
            totals[i] += advantages[i, g]
    for k in range(pi.shape[0]):
        for i in range(n_groups):
            covectors[k, i] -= totals[i] * pi[k, i]


@_stage
def project(theta, ball):
    """Project the iterates (R, d) onto the ball."""
    n_runs, dimension = theta.shape
    for r in range(n_runs):
        distance = 0.0
        for i in range(dimension):
            distance += (theta[r, i] - ball[i]) ** 2
        if distance > ball[dimension] ** 2:
            shrink = ball[dimension] / np.sqrt(distance)
            for i in range(dimension):
                theta[r, i] = ball[i] + shrink * (theta[r, i] - ball[i])


@_stage
def follow(theta, count, average, farthest):
    """Take the iterates (R, d), the `count`-th of their runs, into the averages and the farthest squared distances."""
    n_runs, dimension = theta.shape
    flat, means = theta.ravel(), average.ravel()
    for i in range(flat.shape[0]):
        means[i] += (flat[i] - means[i]) / count
    for r in range(n_runs):
        distance = 0.0
        for i in range(dimension):
            distance += (theta[r, i] - farthest[r, 1 + i]) ** 2
        farthest[r, 0] = max(farthest[r, 0], distance)


@_stage
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


@_stage
def keep_rollouts(step, prompts, pi, responses, rewards, strength, trace):
    """Keep the mean rewards of a step and, within the window, its part of the Hessian; groups are (K, N), (G, N) and (N, G)."""
    n_runs = trace.path.shape[0]
    n_groups, group_size = rewards.shape
    batch_size = n_groups // n_runs
    in_window = trace.window[0] <= step < trace.window[1]
    share = 1.0 / (batch_size * group_size * (trace.window[1] - trace.window[0]))
    for r in range(n_runs):
        trace.mean_rewards[r, step] = 0.0
        for i in range(r * batch_size, (r + 1) * batch_size):
            trace.mean_rewards[r, step] += rewards[i].mean() / batch_size
            if in_window:
                add_hessian(trace.hessian[r], trace.features[prompts[i]], pi[:, i], responses[:, i], rewards[i], strength, share)


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
    kernel_groups,
    theta,
    average,
    farthest,
    trace,
):
    """Advance R runs, side by side, by the steps `first` to `last` (excluded) of the uniforms (R, S, B) and (R, S, B, G).

    steps (S,) are the step sizes; `start` is the number of steps taken before those of the uniforms; the kernel sees
    `kernel_groups` groups at a time; ball is the centre (d,) followed by the radius, or empty; theta and average (R, d) are
    advanced in place, and farthest (R, 1 + d), the largest distance so far from the point that follows it, is kept; the
    trace is filled.
    """
    n_runs, _, batch_size, group_size = response_uniforms.shape
    n_responses = environment.laws.shape[1]
    n_groups = n_runs * batch_size
    prompts = np.empty(n_groups, dtype=np.int64)
    logits = np.empty((n_responses, n_groups))
    pi = np.empty((n_responses, n_groups))
    penalties = np.zeros((n_responses, n_groups))
    norms = np.empty((n_responses, n_groups))
    covectors = np.empty((n_responses, n_groups))
    values = np.empty(n_groups)
    standard_deviations = np.empty(n_groups)
    optimal_baselines = np.full(n_groups, np.nan)
    responses = np.empty((group_size, n_groups), dtype=np.int64)
    rewards = np.empty((n_groups, group_size))
    score_norms = np.full((n_groups, group_size), np.nan)
    lengths = np.ones((n_groups, group_size), dtype=np.int64)
    advantages = np.empty((n_groups, group_size))
    for s in range(first, last):
        draw_prompts(prompt_uniforms, s, environment, prompts)
        fill_logits(theta, prompts, array, logits)
        fill_policies(logits, prompts, environment, pi, penalties, values, standard_deviations, optimal_baselines, norms)
        draw_responses(response_uniforms, s, prompts, environment, pi, penalties, norms, responses, rewards, score_norms)
        advantages[:, :] = np.nan
        for i in range(0, n_groups, kernel_groups):
            j = i + kernel_groups
            batch = Batch(
                rewards[i:j],
                score_norms[i:j],
                lengths[i:j],
                values[i:j],
                standard_deviations[i:j],
                optimal_baselines[i:j],
                parameters,
            )
            kernel(batch, advantages[i:j])
        if trace.path.shape[0] > 0:
            keep_rollouts(start + s, prompts, pi, responses, rewards, environment.strength[0], trace)
        fill_covectors(responses, advantages, pi, covectors)
        take_step(theta, prompts, array, covectors, steps[s] / (batch_size * group_size))
        if ball.shape[0] > 0:
            project(theta, ball)
        follow(theta, start + s + 1.0, average, farthest)
        if trace.path.shape[0] > 0:
            trace.path[:, start + s + 1] = theta


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel and policy."""
    counts = (numba.int64, numba.int64)
    streams = (_F3, _F4, *counts, _F1, *counts)
    signature = (KERNEL, FILL_LOGITS, TAKE_STEP, _F3, _F1, _ENVIRONMENT, _F1, *streams, _F2, _F2, _F2, _TRACE)
    return compile_function(advance, numba.void(*signature))
