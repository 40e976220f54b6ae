"""Squared norms of gradients from their covectors, one compiled function for each kind of logit map.

A gradient is sum_u Phi_u' c_u over the prompts u of a batch.  Each function below returns its squared norm from the
number U of distinct prompts, the prompts (at least U), their covectors (at least U, D) and an array that it understands.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, F3, I1, function_value
from grpo_theory.problem import Policy
from grpo_theory.problem.logit_map import FeatureMap, HeadMap, TabularMap

SIGNATURE = numba.float64(numba.int64, I1, F2, F3)


class Geometry(NamedTuple):
    """A compiled squared norm and the array that it reads."""

    squared_norm: Any
    array: Array


@function_value(SIGNATURE)
def tabular_norm(n, prompts, covectors, array):
    """Prompts are orthogonal: sum_u |c_u|^2."""
    total = 0.0
    for u in range(n):
        for k in range(covectors.shape[1]):
            total += covectors[u, k] ** 2
    return total


@function_value(SIGNATURE)
def head_norm(n, prompts, covectors, array):
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


@function_value(SIGNATURE)
def dense_norm(n, prompts, covectors, array):
    """|sum_uk c_uk phi(u, k)|^2, with array the features (M, D, d)."""
    gradient = np.zeros(array.shape[2])
    for u in range(n):
        for k in range(covectors.shape[1]):
            for i in range(array.shape[2]):
                gradient[i] += covectors[u, k] * array[prompts[u], k, i]
    total = 0.0
    for i in range(array.shape[2]):
        total += gradient[i] ** 2
    return total


def geometry(policy: Policy) -> Geometry:
    """Return the squared norm of a policy's gradients.

    The package's own maps have norms that use their structure; any other class, a subclass of one of them included, gets dense
    features by way of its adjoint.
    """
    logit_map = policy.logit_map
    if type(logit_map) is TabularMap:
        return Geometry(tabular_norm.value, np.empty((0, 0, 0)))
    if type(logit_map) is HeadMap:
        return Geometry(head_norm.value, (logit_map.hidden @ logit_map.hidden.T)[None])
    return Geometry(dense_norm.value, features(policy))


def features(policy: Policy) -> Array:
    """Return the dense features of a policy's edges, shape (M, D, d), by way of its map's adjoint."""
    logit_map = policy.logit_map
    if type(logit_map) is FeatureMap:
        return logit_map.features.copy()
    shape = (policy.n_prompts, policy.n_logits)
    rows = [logit_map.adjoint_by_prompt(np.broadcast_to(unit, shape)) for unit in np.eye(policy.n_logits)]
    return np.ascontiguousarray(np.stack(rows, axis=1), dtype=np.float64)
