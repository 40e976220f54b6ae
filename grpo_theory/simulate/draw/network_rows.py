"""What the logits of a network of two layers leave for score norms and for the step, and where.

The rows (R, N) keep what the step needs from the computation of the logits.  The first B I rows are the inputs of the prompts
drawn.  The features of their hidden units (B H rows) and the slopes there (B H) follow.  Last comes W2 as it was before the step,
times the scale (K H).
"""

import numpy as np

from grpo_theory.compiler import stage
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.validation import Array


@stage
def row_places(n_groups, n_inputs, width):
    """Return the rows where the features, the slopes and W2 begin; the inputs are first."""
    return n_groups * n_inputs, n_groups * (n_inputs + width), n_groups * (n_inputs + 2 * width)


def layer_array(network: TwoLayerMap) -> Array:
    """Return what both functions understand, shape (2, M, I): the inputs, and the scale in the first place after them."""
    array = np.zeros((2, *network.inputs.shape))
    array[0], array[1, 0, 0] = network.inputs, network.scale
    return array


def layer_rows(network: TwoLayerMap, batch_size: int) -> int:
    """Return the number of rows that both compute in."""
    return batch_size * (network.inputs.shape[1] + 2 * network.width) + network.n_logits * network.width
