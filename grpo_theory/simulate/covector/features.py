"""The dense features of edges, from covectors to gradients."""

import numpy as np

from grpo_theory.problem import LogitMap
from grpo_theory.problem.logits import FeatureMap
from grpo_theory.validation import Array

LARGEST_FEATURES = 1 << 27
"""The most numbers in an array of dense features: 1 GiB."""


def features(logit_map: LogitMap) -> Array:
    """Return the dense features of the edges of a policy, shape (M, D, d), by way of its map's adjoint."""
    if type(logit_map) is FeatureMap:
        return logit_map.features.copy()
    shape = (logit_map.n_prompts, logit_map.n_logits)
    if (numbers := logit_map.n_prompts * logit_map.n_logits * logit_map.dimension) > LARGEST_FEATURES:
        raise ValueError(
            f"policy must have M D d <= {LARGEST_FEATURES} to be simulated with dense features, got {numbers}. "
            "Ask for exact moments (gradient_law), or for fewer prompts or shorter responses"
        )
    rows = [logit_map.adjoint_by_prompt(np.broadcast_to(unit, shape)) for unit in np.eye(logit_map.n_logits)]
    return np.ascontiguousarray(np.stack(rows, axis=1), dtype=np.float64)
