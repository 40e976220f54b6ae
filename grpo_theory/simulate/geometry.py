"""Squared norms of gradients from their covectors, one compiled function a kind of policy.

A gradient is sum_u Phi_u' c_u over the prompts u of a batch.  Each function below returns its squared norm from the
number U of distinct prompts, the prompts (at least U), their covectors (at least U, K) and an array that it understands.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import compile_function, first_class
from grpo_theory.policy import Policy, SoftmaxHead, TabularSoftmax

SIGNATURE = numba.float64(numba.int64, numba.int64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1])
SQUARED_NORM = types.FunctionType(SIGNATURE)


class Geometry(NamedTuple):
    """A compiled squared norm and the array that it reads."""

    squared_norm: Any
    array: NDArray[np.float64]


def _tabular_norm(n, prompts, covectors, array):
    """Prompts are orthogonal: sum_u |c_u|^2."""
    total = 0.0
    for u in range(n):
        for k in range(covectors.shape[1]):
            total += covectors[u, k] ** 2
    return total


def _head_norm(n, prompts, covectors, array):
    """Sum_uv (h_u . h_v) (c_u . c_v), with array[0] the inner products of the hidden states."""
    total = 0.0
    for u in range(n):
        for v in range(u + 1):
            inner = 0.0
            for k in range(covectors.shape[1]):
                inner += covectors[u, k] * covectors[v, k]
            weight = 1.0 if u == v else 2.0
            total += weight * array[0, prompts[u], prompts[v]] * inner
    return total


def _dense_norm(n, prompts, covectors, array):
    """|sum_uk c_uk phi(u, k)|^2, with array the features (M, K, d)."""
    gradient = np.zeros(array.shape[2])
    for u in range(n):
        for k in range(covectors.shape[1]):
            for i in range(array.shape[2]):
                gradient[i] += covectors[u, k] * array[prompts[u], k, i]
    total = 0.0
    for i in range(array.shape[2]):
        total += gradient[i] ** 2
    return total


@cache
def _compiled(function: Any) -> Any:
    return first_class(compile_function(function, SIGNATURE), SIGNATURE)


def geometry(policy: Policy) -> Geometry:
    """Return the squared norm of a policy's gradients.

    The package's own policies have norms that use their structure; any other class, a subclass with maps of its own included,
    gets dense features by way of its maps.
    """
    if type(policy) is TabularSoftmax:
        return Geometry(_compiled(_tabular_norm), np.empty((0, 0, 0)))
    if type(policy) is SoftmaxHead:
        return Geometry(_compiled(_head_norm), (policy.hidden @ policy.hidden.T)[None])
    return Geometry(_compiled(_dense_norm), features(policy))


def features(policy: Policy) -> NDArray[np.float64]:
    """Return the dense features of a policy, shape (M, K, d), by way of its maps."""
    shape = (policy.n_prompts, policy.n_responses)
    rows = [policy.adjoint_by_prompt(np.broadcast_to(unit, shape)) for unit in np.eye(policy.n_responses)]
    return np.ascontiguousarray(np.stack(rows, axis=1))
