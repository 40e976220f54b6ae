"""Logits of one prompt and steps along one covector, one pair of compiled functions a kind of policy."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import compile_function, first_class
from grpo_theory.policy import Policy, SoftmaxHead, TabularSoftmax
from grpo_theory.simulate.geometry import features

_VECTOR = numba.float64[::1]
_ARRAY = numba.float64[:, :, ::1]
FILL_SIGNATURE = types.void(_VECTOR, numba.int64, _ARRAY, _VECTOR)
STEP_SIGNATURE = types.void(_VECTOR, numba.int64, _ARRAY, _VECTOR, numba.float64)
FILL_LOGITS = types.FunctionType(FILL_SIGNATURE)
TAKE_STEP = types.FunctionType(STEP_SIGNATURE)


class Ascent(NamedTuple):
    """``fill_logits(theta, prompt, array, logits)``, ``take_step(theta, prompt, array, covector, step)``, and their array."""

    fill_logits: Any
    take_step: Any
    array: NDArray[np.float64]


def _tabular_logits(theta, prompt, array, logits):
    """Logits are entries of the table; array[0, 0] has one entry a response."""
    start = prompt * logits.shape[0]
    for k in range(logits.shape[0]):
        logits[k] = theta[start + k]


def _tabular_step(theta, prompt, array, covector, step):
    """Theta's block of the prompt moves by step times the covector."""
    start = prompt * covector.shape[0]
    for k in range(covector.shape[0]):
        theta[start + k] += step * covector[k]


def _dense_logits(theta, prompt, array, logits):
    """Logits are phi(m, k) . theta, with array the features (M, K, d)."""
    for k in range(logits.shape[0]):
        total = 0.0
        for i in range(theta.shape[0]):
            total += array[prompt, k, i] * theta[i]
        logits[k] = total


def _dense_step(theta, prompt, array, covector, step):
    """Theta moves by step times sum_k c_k phi(m, k)."""
    for k in range(covector.shape[0]):
        for i in range(theta.shape[0]):
            theta[i] += step * covector[k] * array[prompt, k, i]


def _head_logits(theta, prompt, array, logits):
    """Logits are W h_m, with array[0] the hidden states (M, H)."""
    width = array.shape[2]
    for k in range(logits.shape[0]):
        total = 0.0
        for i in range(width):
            total += array[0, prompt, i] * theta[k * width + i]
        logits[k] = total


def _head_step(theta, prompt, array, covector, step):
    """Row k of the head moves by step times c_k h_m."""
    width = array.shape[2]
    for k in range(covector.shape[0]):
        for i in range(width):
            theta[k * width + i] += step * covector[k] * array[0, prompt, i]


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
