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


_ENVIRONMENT = types.NamedTuple((_F2, _I2, _F1, _F3, _F2, _F2, _F2, _F1, _F3), Environment)


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


def fill_policies(logits, prompts, environment, pi, penalties, values, standard_deviations, optimal_baselines, norms):
    """Turn the logits (N, K) of N groups into the policy's probabilities, and into what oracles know of the prompt."""
    n_groups, n_responses = logits.shape
    has_norms = environment.gram.shape[0] > 0
    strength = environment.strength[0]
    for b in range(n_groups):
        m = np.uintp(prompts[b])
        highest = logits[b, 0]
        for k in range(1, n_responses):
            highest = max(highest, logits[b, k])
        total = 0.0
        for k in range(n_responses):
            pi[b, k] = np.exp(logits[b, k] - highest)
            total += pi[b, k]
        if strength > 0.0:
            log_total = np.log(total) + highest
            for k in range(n_responses):
                penalties[b, k] = strength * (logits[b, k] - log_total - environment.log_reference[m, k])
        value = 0.0
        square = 0.0
        for k in range(n_responses):
            pi[b, k] /= total
            mean, penalty = environment.mean_rewards[m, k], penalties[b, k]
            value += pi[b, k] * (mean - penalty)
            square += pi[b, k] * (environment.mean_squares[m, k] + penalty * (penalty - 2.0 * mean))
        values[b] = value
        standard_deviations[b] = np.sqrt(max(square - value * value, 0.0))
        if has_norms:
            both = 0.0
            for k in range(n_responses):
                norms[b, k] = 0.0
                for i in range(n_responses):
                    norms[b, k] -= environment.gram[m, k, i] * pi[b, i]
                both -= pi[b, k] * norms[b, k]
            power = 0.0
            weighted = 0.0
            for k in range(n_responses):
                norms[b, k] = max(environment.gram[m, k, k] + 2.0 * norms[b, k] + both, 0.0)
                power += pi[b, k] * norms[b, k]
                weighted += pi[b, k] * norms[b, k] * (environment.mean_rewards[m, k] - penalties[b, k])
            optimal_baselines[b] = weighted / power if power > 0.0 else value


def draw_responses(uniforms, s, prompts, environment, pi, penalties, norms, responses, rewards, score_norms):
    """Draw the responses of step s from the uniforms (R, S, B, G) by inversion, and their rewards from what is left of them.

    The steps along the distribution function are selections and not branches, for which way those go cannot be predicted.
    """
    n_runs, _, batch_size, group_size = uniforms.shape
    n_responses, n_values = environment.laws.shape[1:]
    for r in range(n_runs):
        for b in range(batch_size):
            i = r * batch_size + b
            m = np.uintp(prompts[i])
            for g in range(group_size):
                u = uniforms[r, s, b, g]
                k = np.uintp(0)
                for other in range(n_responses - 1):
                    step = pi[i, other]
                    above = (k == np.uintp(other)) & (u >= step)
                    u -= step if above else 0.0
                    k += np.uintp(above)
                # What is left of u, relative to pi_k, is uniform again, and draws the reward.
                u = u / pi[i, k] if pi[i, k] > 0.0 else 0.0
                j = np.uintp(0)
                for other in range(n_values - 1):
                    step = environment.laws[m, k, other]
                    above = (j == np.uintp(other)) & (u >= step)
                    u -= step if above else 0.0
                    j += np.uintp(above)
                responses[i, g] = k
                rewards[i, g] = environment.values[j] - penalties[i, k]
                score_norms[i, g] = norms[i, k]


def fill_covectors(responses, advantages, pi, covectors):
    """Sum the advantages (N, G) of each response and subtract what the policy expects, (N, K)."""
    n_groups, group_size = advantages.shape
    for i in range(n_groups):
        total = 0.0
        for k in range(pi.shape[1]):
            covectors[i, k] = 0.0
        for g in range(group_size):
            covectors[i, np.uintp(responses[i, g])] += advantages[i, g]
            total += advantages[i, g]
        for k in range(pi.shape[1]):
            covectors[i, k] -= total * pi[i, k]


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


def follow(theta, count, average, farthest):
    """Take the iterates (R, d), the `count`-th of their runs, into the averages and the farthest distances."""
    n_runs, dimension = theta.shape
    for r in range(n_runs):
        distance = 0.0
        for i in range(dimension):
            average[r, i] += (theta[r, i] - average[r, i]) / count
            distance += (theta[r, i] - farthest[r, 1 + i]) ** 2
        farthest[r, 0] = max(farthest[r, 0], np.sqrt(distance))


_inline = numba.njit(error_model="numpy", nogil=True)
_draw_prompts, _fill_policies, _draw_responses = _inline(draw_prompts), _inline(fill_policies), _inline(draw_responses)
_fill_covectors, _project, _follow = _inline(fill_covectors), _inline(project), _inline(follow)


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
):
    """Advance R runs, side by side, by the steps `first` to `last` (excluded) of the uniforms (R, S, B) and (R, S, B, G).

    steps (S,) are the step sizes; `start` is the number of steps taken before those of the uniforms; the kernel sees
    `kernel_groups` groups at a time; ball is the centre (d,) followed by the radius, or empty; theta and average (R, d) are
    advanced in place, and farthest (R, 1 + d), the largest distance so far from the point that follows it, is kept.
    """
    n_runs, _, batch_size, group_size = response_uniforms.shape
    n_responses = environment.laws.shape[1]
    n_groups = n_runs * batch_size
    prompts = np.empty(n_groups, dtype=np.int64)
    logits = np.empty((n_groups, n_responses))
    pi = np.empty((n_groups, n_responses))
    penalties = np.zeros((n_groups, n_responses))
    norms = np.full((n_groups, n_responses), np.nan)
    covectors = np.empty((n_groups, n_responses))
    values = np.empty(n_groups)
    standard_deviations = np.empty(n_groups)
    optimal_baselines = np.full(n_groups, np.nan)
    responses = np.empty((n_groups, group_size), dtype=np.int64)
    rewards = np.empty((n_groups, group_size))
    score_norms = np.empty((n_groups, group_size))
    lengths = np.ones((n_groups, group_size), dtype=np.int64)
    advantages = np.empty((n_groups, group_size))
    for s in range(first, last):
        _draw_prompts(prompt_uniforms, s, environment, prompts)
        fill_logits(theta, prompts, array, logits)
        _fill_policies(
            logits, prompts, environment, pi, penalties, values, standard_deviations, optimal_baselines, norms
        )
        _draw_responses(
            response_uniforms, s, prompts, environment, pi, penalties, norms, responses, rewards, score_norms
        )
        advantages[:, :] = np.nan
        for i in range(0, n_groups, kernel_groups):
            j = i + kernel_groups
            batch = Batch(
                rewards[i:j], score_norms[i:j], lengths[i:j], values[i:j], standard_deviations[i:j], optimal_baselines[i:j], parameters
            )
            kernel(batch, advantages[i:j])
        _fill_covectors(responses, advantages, pi, covectors)
        take_step(theta, prompts, array, covectors, steps[s] / (batch_size * group_size))
        if ball.shape[0] > 0:
            _project(theta, ball)
        _follow(theta, start + s + 1.0, average, farthest)


@cache
def compiled_advance() -> Any:
    """Compile `advance`, or read it from the cache; one machine code serves every kernel and policy."""
    counts = (numba.int64, numba.int64)
    return compile_function(
        advance,
        numba.void(
            KERNEL, FILL_LOGITS, TAKE_STEP, _F3, _F1, _ENVIRONMENT, _F1, _F3, _F4, *counts, _F1, *counts, _F2, _F2, _F2
        ),
    )
