"""Logits of prompts and steps along covectors, one pair of compiled functions a kind of policy.

Theta (R, d) has a row a run, prompts (R B,) and logits and covectors (K, R B) a column a group, run by run.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import compile_function, first_class
from grpo_theory.policy import Policy, SoftmaxHead, TabularSoftmax
from grpo_theory.simulate.geometry import features

_MATRIX = numba.float64[:, ::1]
_PROMPTS = numba.int64[::1]
_ARRAY = numba.float64[:, :, ::1]
FILL_SIGNATURE = types.void(_MATRIX, _PROMPTS, _ARRAY, _MATRIX)
STEP_SIGNATURE = types.void(_MATRIX, _PROMPTS, _ARRAY, _MATRIX, numba.float64)
FILL_LOGITS = types.FunctionType(FILL_SIGNATURE)
TAKE_STEP = types.FunctionType(STEP_SIGNATURE)


class Ascent(NamedTuple):
    """``fill_logits(theta, prompts, array, logits)``, ``take_step(theta, prompts, array, covectors, step)``, and their array."""

    fill_logits: Any
    take_step: Any
    array: NDArray[np.float64]


def _tabular_logits(theta, prompts, array, logits):
    """Logits are entries of the table; array is not read."""
    batch_size, n_responses = prompts.shape[0] // theta.shape[0], logits.shape[0]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            start = np.uintp(prompts[b] * n_responses)
            for k in range(n_responses):
                logits[k, b] = theta[r, start + np.uintp(k)]


def _tabular_step(theta, prompts, array, covectors, step):
    """Theta's block of the prompt moves by step times the covector."""
    batch_size, n_responses = prompts.shape[0] // theta.shape[0], covectors.shape[0]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            start = np.uintp(prompts[b] * n_responses)
            for k in range(n_responses):
                theta[r, start + np.uintp(k)] += step * covectors[k, b]


def _dense_logits(theta, prompts, array, logits):
    """Logits are phi(m, k) . theta, with array the features (M, K, d)."""
    batch_size = prompts.shape[0] // theta.shape[0]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            m = np.uintp(prompts[b])
            for k in range(logits.shape[0]):
                total = 0.0
                for i in range(theta.shape[1]):
                    total += array[m, k, i] * theta[r, i]
                logits[k, b] = total


def _dense_step(theta, prompts, array, covectors, step):
    """Theta moves by step times sum_k c_k phi(m, k)."""
    batch_size = prompts.shape[0] // theta.shape[0]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            m = np.uintp(prompts[b])
            for k in range(covectors.shape[0]):
                for i in range(theta.shape[1]):
                    theta[r, i] += step * covectors[k, b] * array[m, k, i]


def _head_logits(theta, prompts, array, logits):
    """Logits are W h_m, with array[0] the hidden states (M, H)."""
    batch_size, width = prompts.shape[0] // theta.shape[0], array.shape[2]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            m = np.uintp(prompts[b])
            for k in range(logits.shape[0]):
                total = 0.0
                for i in range(width):
                    total += array[0, m, i] * theta[r, k * width + i]
                logits[k, b] = total


def _head_step(theta, prompts, array, covectors, step):
    """Row k of the head moves by step times c_k h_m."""
    batch_size, width = prompts.shape[0] // theta.shape[0], array.shape[2]
    for r in range(theta.shape[0]):
        for b in range(r * batch_size, (r + 1) * batch_size):
            m = np.uintp(prompts[b])
            for k in range(covectors.shape[0]):
                for i in range(width):
                    theta[r, k * width + i] += step * covectors[k, b] * array[0, m, i]


@cache
def _compiled(function: Any, signature: Any) -> Any:
    return first_class(compile_function(function, signature), signature)


def _ascent(fill: Any, step: Any, array: NDArray[np.float64]) -> Ascent:
    return Ascent(_compiled(fill, FILL_SIGNATURE), _compiled(step, STEP_SIGNATURE), array)


def ascent(policy: Policy) -> Ascent:
    """Return the logits and the step of a policy: its own for the package's policies, dense features for any other class."""
    if type(policy) is TabularSoftmax:
        return _ascent(_tabular_logits, _tabular_step, np.empty((0, 0, 0)))
    if type(policy) is SoftmaxHead:
        return _ascent(_head_logits, _head_step, policy.hidden[None].copy())
    return _ascent(_dense_logits, _dense_step, features(policy))
