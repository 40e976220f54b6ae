"""The dense features of a policy's edges, from covectors to gradients."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.problem import Policy
from grpo_theory.problem.logit_map import FeatureMap

LARGEST_FEATURES = 1 << 27
"""The most numbers in an array of dense features: 1 GiB."""


def features(policy: Policy) -> Array:
    """Return the dense features of a policy's edges, shape (M, D, d), by way of its map's adjoint."""
    logit_map = policy.logit_map
    if type(logit_map) is FeatureMap:
        return logit_map.features.copy()
    shape = (policy.n_prompts, policy.n_logits)
    if (numbers := policy.n_prompts * policy.n_logits * policy.dimension) > LARGEST_FEATURES:
        raise ValueError(
            f"policy must have M D d <= {LARGEST_FEATURES} to be simulated with dense features, got {numbers} for {policy!r}: "
            "ask for exact moments (gradient_law), or for fewer prompts or shorter responses"
        )
    rows = [logit_map.adjoint_by_prompt(np.broadcast_to(unit, shape)) for unit in np.eye(policy.n_logits)]
    return np.ascontiguousarray(np.stack(rows, axis=1), dtype=np.float64)
