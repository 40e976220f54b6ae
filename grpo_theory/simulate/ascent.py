"""Stage 4, the step: from theta to the logits of prompts, and along covectors, one pair of functions for each kind of logit map.

Theta is (R, d), one row for each run; prompts are (n,), logits and covectors (D, n), lane i being one of run i modulo R.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, F3, I1, function_value, stage
from grpo_theory.problem import Policy
from grpo_theory.problem.logit_map import HeadMap, TabularMap
from grpo_theory.simulate.geometry import features

FILL_LOGITS = numba.void(F2, I1, F3, F2)
TAKE_STEP = numba.void(F2, I1, F3, F2, numba.float64)


class Ascent(NamedTuple):
    """``fill_logits(theta, prompts, array, logits)``, ``take_step(theta, prompts, array, covectors, step)``, and their array."""

    fill_logits: Any
    take_step: Any
    array: Array


@function_value(FILL_LOGITS)
def tabular_logits(theta, prompts, array, logits):
    """Logits are entries of the table; array is not read."""
    (n_logits, n), n_runs = logits.shape, theta.shape[0]
    for run in range(n_runs):
        for i in range(run, n, n_runs):
            start = np.uintp(prompts[i] * n_logits)
            for k in range(n_logits):
                logits[k, i] = theta[run, start + np.uintp(k)]


@function_value(TAKE_STEP)
def tabular_step(theta, prompts, array, covectors, step):
    """Theta's block of the prompt moves by step times the covector."""
    (n_logits, n), n_runs = covectors.shape, theta.shape[0]
    for run in range(n_runs):
        for i in range(run, n, n_runs):
            start = np.uintp(prompts[i] * n_logits)
            for k in range(n_logits):
                theta[run, start + np.uintp(k)] += step * covectors[k, i]


@function_value(FILL_LOGITS)
def dense_logits(theta, prompts, array, logits):
    """Logits are phi(m, k) . theta, with array the features (M, D, d)."""
    n_runs, dimension = theta.shape
    for run in range(n_runs):
        for i in range(run, logits.shape[1], n_runs):
            m = np.uintp(prompts[i])
            for k in range(logits.shape[0]):
                total = 0.0
                for j in range(dimension):
                    total += array[m, k, j] * theta[run, j]
                logits[k, i] = total


@function_value(TAKE_STEP)
def dense_step(theta, prompts, array, covectors, step):
    """Theta moves by step times sum_k c_k phi(m, k)."""
    n_runs, dimension = theta.shape
    for run in range(n_runs):
        for i in range(run, covectors.shape[1], n_runs):
            m = np.uintp(prompts[i])
            for k in range(covectors.shape[0]):
                weight = step * covectors[k, i]
                for j in range(dimension):
                    theta[run, j] += weight * array[m, k, j]


@function_value(FILL_LOGITS)
def head_logits(theta, prompts, array, logits):
    """Logits are W h_m, with array[0] the hidden states (M, H)."""
    width, n_runs = array.shape[2], theta.shape[0]
    for run in range(n_runs):
        for i in range(run, logits.shape[1], n_runs):
            m = np.uintp(prompts[i])
            for k in range(logits.shape[0]):
                # Four sums, because a sum into one place waits for the sum before it.
                a, b, c, d, start = 0.0, 0.0, 0.0, 0.0, k * width
                for j in range(0, width - 3, 4):
                    a += array[0, m, j] * theta[run, start + j]
                    b += array[0, m, j + 1] * theta[run, start + j + 1]
                    c += array[0, m, j + 2] * theta[run, start + j + 2]
                    d += array[0, m, j + 3] * theta[run, start + j + 3]
                for j in range(width // 4 * 4, width):
                    a += array[0, m, j] * theta[run, start + j]
                logits[k, i] = (a + b) + (c + d)


@function_value(TAKE_STEP)
def head_step(theta, prompts, array, covectors, step):
    """Row k of the head moves by step times c_k h_m."""
    width, n_runs = array.shape[2], theta.shape[0]
    for run in range(n_runs):
        for i in range(run, covectors.shape[1], n_runs):
            m = np.uintp(prompts[i])
            for k in range(covectors.shape[0]):
                weight = step * covectors[k, i]
                for j in range(width):
                    theta[run, k * width + j] += weight * array[0, m, j]


def ascent(policy: Policy) -> Ascent:
    """Return the logits and the step of a policy: its own for the package's maps, dense features for any other class."""
    logit_map = policy.logit_map
    if type(logit_map) is TabularMap:
        return Ascent(tabular_logits.value, tabular_step.value, np.empty((0, 0, 0)))
    if type(logit_map) is HeadMap:
        return Ascent(head_logits.value, head_step.value, logit_map.hidden[None].copy())
    return Ascent(dense_logits.value, dense_step.value, features(policy))


@stage
def project(theta, ball):
    """Project the iterates (R, d) onto the ball: the centre (d,) followed by the radius, or empty for none."""
    if ball.shape[0] == 0:
        return
    n_runs, dimension = theta.shape
    for r in range(n_runs):
        distance = 0.0
        for i in range(dimension):
            distance += (theta[r, i] - ball[i]) ** 2
        if distance > ball[dimension] ** 2:
            shrink = ball[dimension] / np.sqrt(distance)
            for i in range(dimension):
                theta[r, i] = ball[i] + shrink * (theta[r, i] - ball[i])


@stage
def follow(theta, count, start, average, farthest):
    """Take the iterates (R, d), the `count`-th of their runs, into averages and largest squared distances from the start."""
    n_runs, dimension = theta.shape
    flat, means = theta.ravel(), average.ravel()
    for i in range(flat.shape[0]):
        means[i] += (flat[i] - means[i]) / count
    for r in range(n_runs):
        distance = 0.0
        for i in range(dimension):
            distance += (theta[r, i] - start[r, i]) ** 2
        farthest[r] = max(farthest[r], distance)
